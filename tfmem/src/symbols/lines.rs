//! Source lines and inlined functions, from a file's debugging information (DWARF, by `addr2line`).

use std::sync::Arc;

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, LittleEndian, Section as _, SectionId};

use super::demangle::demangle;
use crate::attach::elf::Elf;
use crate::report::model::{Frame, FrameKind};

/// All sections of one file together, unpacked. What is larger is not read: names then come from the symbols.
const MOST: u64 = 256 << 20;
/// Functions that were inlined into one another at one place.
const MOST_INLINED: usize = 64;

type Bytes = EndianArcSlice<LittleEndian>;

pub struct Lines {
    context: Context<Bytes>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Lines")
    }
}

impl Lines {
    /// `None`: there is none, or none that can be used.
    pub fn of(elf: &Elf) -> Option<Self> {
        let mut left = MOST;
        let load = |id: SectionId| -> Result<Bytes, crate::attach::elf::ElfError> {
            let bytes = elf.section(id.name(), left)?.unwrap_or_default();
            left = left.saturating_sub(bytes.len() as u64);
            Ok(Bytes::new(Arc::from(bytes), LittleEndian))
        };
        let dwarf = Dwarf::load(load).inspect_err(|error| log::debug!("debugging information: {error}")).ok()?;
        if dwarf.debug_info.reader().bytes().is_empty() {
            return None;
        }
        let context = Context::from_dwarf(dwarf).inspect_err(|error| log::debug!("debugging information: {error}"));
        Some(Self { context: context.ok()? })
    }

    /// The innermost first. Empty: nothing is known. A name is empty where only the line is known.
    pub fn frames(&self, address: u64) -> Vec<Frame> {
        let mut out: Vec<Frame> = Vec::new();
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return out };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            out.push(Frame {
                file: location.and_then(|location| location.file).map(str::to_owned),
                line: location.and_then(|location| location.line).filter(|&line| line > 0),
                inlined: true,
                ..Frame::named(FrameKind::Native, name.as_deref().map(demangle).unwrap_or_default())
            });
            if out.len() == MOST_INLINED {
                break;
            }
        }
        // All but the outermost were put into it.
        if let Some(outermost) = out.last_mut() {
            outermost.inlined = false;
        }
        out.retain(|frame| !frame.inlined || !frame.name.is_empty());
        out.shrink_to_fit();
        out
    }
}
