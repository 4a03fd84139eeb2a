//! speedscope's own format (<https://www.speedscope.app/file-format-schema.json>): one profile by bytes, one by count.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::profile::{Profile, Style, Weight, label};
use crate::report::{model::Frame, units::plain};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: String,
    active_profile_index: u32,
    shared: Shared,
    profiles: Vec<Sampled>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<SharedFrame>,
}

#[derive(Serialize)]
struct SharedFrame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// # Errors
/// What the writer says.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut frames = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut number = |frame: &Frame| {
        *numbers.entry(label(frame, Style::Plain)).or_insert_with(|| {
            frames.push(SharedFrame {
                name: label(frame, Style::Plain),
                file: frame.file.as_ref().or(frame.module.as_ref()).map(|file| plain(file, 400)),
                line: frame.line,
            });
            frames.len() - 1
        })
    };
    let samples: Vec<Vec<usize>> =
        profile.rows.iter().map(|row| row.frames.iter().map(&mut number).collect()).collect();
    let sampled = |name, unit, weight| Sampled {
        kind: "sampled",
        name,
        unit,
        start_value: 0,
        end_value: profile.total(weight),
        samples: samples.clone(),
        weights: profile.rows.iter().map(|row| row.weight(weight)).collect(),
    };
    let profiles = vec![sampled("bytes", "bytes", Weight::Bytes), sampled("allocations", "none", Weight::Count)];
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: format!("{} · {}", profile.title(), profile.summary()),
        exporter: format!("tfmem {}", env!("CARGO_PKG_VERSION")),
        active_profile_index: 0,
        shared: Shared { frames },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}
