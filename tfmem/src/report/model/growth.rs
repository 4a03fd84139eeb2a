//! How memory went from round to round, and whether what was predicted came true.

use serde::{Deserialize, Serialize};

use super::{BoundaryKind, Cause, Layer};

/// What is alive after each of several boundaries of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    pub kind: BoundaryKind,
    pub rounds: u64,
    /// Absent: all layers that TensorFlow allocates in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    /// Variable or op, without the numbers that TensorFlow gives to make names unique. Absent: all places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Who holds most of it after the last round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    pub first_bytes: u64,
    pub last_bytes: u64,
    /// The median of the slopes between all pairs of rounds.
    pub per_round_bytes: i64,
    /// Share of the pairs of rounds of which the later one has more, per cent.
    pub confidence: u64,
    /// It still grows; else it is constant, or falls.
    pub grows: bool,
    pub summary: String,
}

/// Something that a verdict said of the future, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// The boundary whose verdict it is.
    pub boundary: u64,
    pub cause: Cause,
    pub predicted_bytes: u64,
    pub happened_bytes: u64,
    pub hit: bool,
    pub summary: String,
}
