//! The format of Google's `pprof`: a gzipped protocol buffer, with the sample types of a heap profile.
//!
//! Field numbers: `profile.proto` in <https://github.com/google/pprof/blob/main/proto/profile.proto>.

mod proto;

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use prost::Message as _;

use self::proto::{Function, Label, Line, Location, Mapping, Sample, ValueType};
use crate::profile::{Profile, Row, Style, label, word};
use crate::report::{model::Frame, units::plain};

/// # Errors
/// What the writer says.
pub fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&encode(profile).encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

/// A list in which equal things have one number, from 1.
struct Numbers<K, T> {
    by_key: HashMap<K, u64>,
    list: Vec<T>,
}

impl<K: Eq + Hash, T> Numbers<K, T> {
    fn new() -> Self {
        Self { by_key: HashMap::new(), list: Vec::new() }
    }

    fn get(&mut self, key: K, make: impl FnOnce(u64) -> T) -> u64 {
        *self.by_key.entry(key).or_insert_with(|| {
            let id = self.list.len() as u64 + 1;
            self.list.push(make(id));
            id
        })
    }
}

type LineKey = (u64, i64);

struct Builder {
    strings: Numbers<String, String>,
    mappings: Numbers<(String, Option<String>), Mapping>,
    functions: Numbers<(i64, i64), Function>,
    locations: Numbers<(u64, u64, Vec<LineKey>), Location>,
}

fn encode(profile: &Profile) -> proto::Profile {
    let mut b = Builder {
        strings: Numbers::new(),
        mappings: Numbers::new(),
        functions: Numbers::new(),
        locations: Numbers::new(),
    };
    let (objects, space) =
        if profile.ever { ("alloc_objects", "alloc_space") } else { ("inuse_objects", "inuse_space") };
    let objects = ValueType { r#type: b.string(objects), unit: b.string("count") };
    let space = ValueType { r#type: b.string(space), unit: b.string("bytes") };
    let sample = profile.rows.iter().map(|row| b.sample(row)).collect();
    let comment = vec![b.string(&format!("{} · {}", profile.title(), profile.summary()))];
    proto::Profile {
        sample_type: vec![objects, space.clone()],
        sample,
        time_nanos: profile.at_ns.and_then(|at| i64::try_from(at).ok()).unwrap_or(0),
        comment,
        default_sample_type: space.r#type,
        period_type: Some(space),
        period: 1,
        mapping: b.mappings.list,
        location: b.locations.list,
        function: b.functions.list,
        // The first string is the empty one.
        string_table: std::iter::once(String::new()).chain(b.strings.list).collect(),
    }
}

impl Builder {
    fn string(&mut self, text: &str) -> i64 {
        if text.is_empty() {
            return 0;
        }
        self.strings.get(text.to_owned(), |_| text.to_owned()) as i64
    }

    fn sample(&mut self, row: &Row) -> Sample {
        let mut labels = vec![("layer", word(row.layer))];
        labels.extend(row.cause.map(|cause| ("cause", word(cause))));
        labels.extend(row.owner.as_ref().map(|owner| ("owner", plain(owner, 100))));
        let mut label: Vec<Label> = labels
            .into_iter()
            .map(|(key, text)| Label { key: self.string(key), str: self.string(&text), ..Label::default() })
            .collect();
        label.push(Label { key: self.string("pid"), num: i64::from(row.pid), ..Label::default() });
        Sample {
            location_id: self.locations(&row.frames),
            value: [row.count, row.bytes].map(|n| i64::try_from(n).unwrap_or(i64::MAX)).to_vec(),
            label,
        }
    }

    /// From the innermost outwards. Inlined functions are lines of the place that they were put into.
    fn locations(&mut self, frames: &[Frame]) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut lines: Vec<Line> = Vec::new();
        for frame in frames.iter().rev() {
            lines.push(self.line(frame));
            if !frame.inlined {
                ids.push(self.location(frame, std::mem::take(&mut lines)));
            }
        }
        // A stack that ends in an inlined function was cut there.
        if let Some(frame) = frames.first().filter(|_| !lines.is_empty()) {
            ids.push(self.location(frame, lines));
        }
        ids
    }

    fn location(&mut self, frame: &Frame, line: Vec<Line>) -> u64 {
        let mapping_id = frame.module.as_ref().map_or(0, |module| self.mapping(module, frame.build_id.as_deref()));
        let address = frame.address.unwrap_or(0);
        let key = (mapping_id, address, line.iter().map(|line| (line.function_id, line.line)).collect());
        self.locations.get(key, |id| Location { id, mapping_id, address, line })
    }

    fn line(&mut self, frame: &Frame) -> Line {
        let name = self.string(&label(frame, Style::Name));
        let filename = self.string(&frame.file.as_deref().map_or_else(String::new, |file| plain(file, 400)));
        // Without a name of the linker's: pprof would take such a one for mangled, and cut what is in `<>` out of it.
        let function_id = self.functions.get((name, filename), |id| Function { id, name, filename });
        Line { function_id, line: frame.line.map_or(0, i64::from) }
    }

    fn mapping(&mut self, module: &str, build_id: Option<&str>) -> u64 {
        let filename = self.string(&plain(module, 400));
        let build = self.string(&build_id.map_or_else(String::new, |id| plain(id, 128)));
        self.mappings.get((module.to_owned(), build_id.map(str::to_owned)), |id| Mapping {
            id,
            filename,
            build_id: build,
            // Names are given: pprof need not look for the file.
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        })
    }
}
