//! Metrics as data, from which every way out is fed: names are OpenTelemetry's, Prometheus' follow from them.

use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    /// Only grows, since the agent began.
    Counter,
}

/// Units by the UCUM spelling that OpenTelemetry uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Seconds,
    /// Plain counts.
    One,
}

impl Unit {
    #[must_use]
    pub const fn ucum(self) -> &'static str {
        match self {
            Self::Bytes => "By",
            Self::Seconds => "s",
            Self::One => "1",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
}

pub type Labels = Vec<(&'static str, Cow<'static, str>)>;

#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub labels: Labels,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    pub name: &'static str,
    pub help: &'static str,
    pub unit: Unit,
    pub kind: Kind,
    pub points: Vec<Point>,
}

impl Family {
    pub const fn new(name: &'static str, help: &'static str, unit: Unit, kind: Kind) -> Self {
        Self { name, help, unit, kind, points: Vec::new() }
    }

    pub fn gauge(name: &'static str, help: &'static str, unit: Unit) -> Self {
        Self::new(name, help, unit, Kind::Gauge)
    }

    pub fn counter(name: &'static str, help: &'static str, unit: Unit) -> Self {
        Self::new(name, help, unit, Kind::Counter)
    }

    pub fn add(&mut self, labels: Labels, value: Value) {
        self.points.push(Point { labels, value });
    }

    /// With one point.
    #[must_use]
    pub fn with(mut self, labels: Labels, value: Value) -> Self {
        self.add(labels, value);
        self
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}
