//! TensorFlow's version: from the library itself where it says it, else from the wheel's metadata folder beside it.

use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};

use crate::attach::elf::Elf;
use crate::catalogue::{DISTRIBUTIONS, VERSION_FUNCTION};

const LONGEST_VERSION: usize = 32;

pub fn of(elf: &Elf, path: &Path) -> Option<String> {
    from_code(elf).or_else(|| from_wheel(path))
}

/// `TF_Version` returns the address of a string constant: the first `lea rax, [rip+…]` says where it is.
fn from_code(elf: &Elf) -> Option<String> {
    let symbol = elf.lookup(VERSION_FUNCTION).ok()??;
    let code = elf.at(symbol.value, symbol.size.clamp(1, 64)).ok()?;
    let mut decoder = Decoder::with_ip(64, &code, symbol.value, DecoderOptions::NONE);
    let load = decoder.iter().take(8).find(|i| {
        i.mnemonic() == Mnemonic::Lea
            && i.op0_kind() == OpKind::Register
            && i.op0_register() == Register::RAX
            && i.is_ip_rel_memory_operand()
    })?;
    let bytes = elf.at(load.ip_rel_memory_address(), LONGEST_VERSION as u64).ok()?;
    let end = bytes.iter().position(|&b| b == 0)?;
    let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
    is_version(text).then(|| text.to_owned())
}

/// `…/site-packages/tensorflow/libtensorflow_framework.so.2` and `…/site-packages/tensorflow-2.15.1.dist-info`.
fn from_wheel(path: &Path) -> Option<String> {
    let real = through_map_files(path).unwrap_or_else(|| path.to_owned());
    let packages = real.parent()?.parent()?;
    // A folder of packages has some hundreds of entries; more is not worth the time.
    std::fs::read_dir(packages).ok()?.take(20_000).flatten().find_map(|entry| {
        let name = entry.file_name();
        let (package, version) = name.to_str()?.strip_suffix(".dist-info")?.split_once('-')?;
        (DISTRIBUTIONS.contains(&package) && is_version(version)).then(|| version.to_owned())
    })
}

/// `/proc/PID/map_files/…` is a link whose text is the path in that process's own root.
fn through_map_files(path: &Path) -> Option<PathBuf> {
    let inside = path.strip_prefix("/proc").ok()?;
    let mut parts = inside.components();
    let pid = parts.next()?;
    if parts.next()?.as_os_str() != "map_files" {
        return None;
    }
    let target = std::fs::read_link(path).ok()?;
    Some(Path::new("/proc").join(pid).join("root").join(target.strip_prefix("/").ok()?))
}

fn is_version(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
    let numbers = text.split('.').take(2).all(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    text.len() <= LONGEST_VERSION && text.contains('.') && numbers && text.chars().all(fits)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop")]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_from_other_text() {
        for good in ["2.15.1", "2.21.0-rc1", "2.9.0.dev20220101", "1.15"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "2", "v2.15", "2.", "2.x", "2.15\n", "TensorFlow 2.15", &"1.".repeat(40)] {
            assert!(!is_version(bad), "{bad}");
        }
    }

    #[test]
    fn a_wheel_says_its_version() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["tensorflow", "tensorflow_estimator-2.15.0.dist-info", "numpy-1.26.4.dist-info"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let library = dir.path().join("tensorflow/libtensorflow_framework.so.2");
        assert_eq!(from_wheel(&library), None);
        std::fs::create_dir(dir.path().join("tensorflow_cpu-2.21.0.dist-info")).unwrap();
        assert_eq!(from_wheel(&library).as_deref(), Some("2.21.0"));
    }
}
