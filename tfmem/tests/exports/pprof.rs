//! The profile for Google's `pprof`, read by hand, and by the tool itself where it is installed.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::Command,
};

use tfmem::{export::pprof, profile::Which};

use super::{
    golden, profile, sums,
    wire::{Field, all, fields, number, packed},
};

fn encoded() -> Vec<u8> {
    let mut out = Vec::new();
    pprof::write(&profile(Which::End), &mut out).unwrap();
    out
}

struct Read {
    fields: Vec<Field>,
    strings: Vec<String>,
}

impl Read {
    fn new(gzipped: &[u8]) -> Self {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(gzipped).read_to_end(&mut bytes).unwrap();
        let fields = fields(&bytes);
        let strings = all(&fields, 6).into_iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect();
        Self { fields, strings }
    }

    fn messages(&self, field: u64) -> Vec<Vec<Field>> {
        all(&self.fields, field).into_iter().map(fields).collect()
    }

    fn by_id(&self, field: u64) -> BTreeMap<u64, Vec<Field>> {
        self.messages(field).into_iter().map(|message| (number(&message, 1), message)).collect()
    }

    fn text(&self, index: u64) -> &str {
        &self.strings[index as usize]
    }

    /// Each sample on a line: figures, then places from the innermost outwards, lines of one place joined by `<`.
    fn shown(&self) -> String {
        let (locations, functions) = (self.by_id(4), self.by_id(5));
        let mut out = String::new();
        for sample in self.messages(2) {
            write!(out, "{:?}", packed(&sample, 2)).unwrap();
            for id in packed(&sample, 1) {
                let lines = all(&locations[&id], 4).into_iter().map(fields);
                let names: Vec<String> = lines
                    .map(|line| {
                        let function = &functions[&number(&line, 1)];
                        let name: String = self.text(number(function, 2)).chars().take(60).collect();
                        format!("{name} ({}:{})", self.text(number(function, 4)), number(&line, 2))
                    })
                    .collect();
                write!(out, " | {}", names.join(" < ")).unwrap();
            }
            for label in all(&sample, 3).into_iter().map(fields) {
                let (text, n) = (self.text(number(&label, 2)), number(&label, 3));
                let value = if text.is_empty() { n.to_string() } else { text.to_owned() };
                write!(out, " {}={value}", self.text(number(&label, 1))).unwrap();
            }
            out.push('\n');
        }
        out
    }
}

#[test]
fn it_is_as_it_was_and_adds_up() {
    let read = Read::new(&encoded());
    assert_eq!(read.strings[0], "");
    let types: Vec<(&str, &str)> =
        read.messages(1).iter().map(|t| (read.text(number(t, 1)), read.text(number(t, 2)))).collect();
    assert_eq!(types, [("inuse_objects", "count"), ("inuse_space", "bytes")]);
    assert_eq!(read.text(number(&read.fields, 14)), "inuse_space");
    let values: Vec<Vec<u64>> = read.messages(2).iter().map(|sample| packed(sample, 2)).collect();
    let sum = |k: usize| values.iter().map(|value| value[k]).sum::<u64>();
    assert_eq!((sum(1), sum(0)), sums());
    let builds: Vec<&str> =
        read.messages(3).iter().map(|m| read.text(number(m, 6))).filter(|b| !b.is_empty()).collect();
    assert_eq!(builds, ["ab12"]);
    golden("end.pprof.txt", &read.shown());
}

/// Google's own tool: of `$TFMEM_PPROF`, or as Debian's Go packages have it.
fn tool() -> Option<PathBuf> {
    let named = std::env::var_os("TFMEM_PPROF").map(PathBuf::from);
    let installed = || {
        let versions = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
        let gos = versions.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("go-")));
        gos.map(|path| path.join("pkg/tool/linux_amd64/pprof")).find(|path| path.exists())
    };
    named.or_else(installed)
}

#[test]
fn googles_tool_reads_it() {
    let Some(tool) = tool() else {
        eprintln!("left out: Google's pprof is not here (package golang-go, or TFMEM_PPROF=/path/to/pprof)");
        return;
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&encoded()).unwrap();
    for (index, sum) in [("inuse_space", sums().0), ("inuse_objects", sums().1)] {
        let args = ["-top", "-nodecount=0", "-nodefraction=0", "-unit=B", "-sample_index", index];
        let out = Command::new(&tool).args(args).arg(file.path()).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(text.contains(&format!("100% of {sum}B total")), "{text}");
        assert!(
            text.contains("FillOp<Eigen::ThreadPoolDevice, float>::Compute") && text.contains("(inline)"),
            "{text}"
        );
    }
}
