//! Symbols by address.

use object::LittleEndian as LE;
use object::elf::{self, Sym64};

use super::{Elf, ElfError, Range, Result, pods, symbols::MAX_SYMBOLS};
use crate::attach::elf::Table;

/// Bytes read at a time.
const WINDOW: u64 = 1 << 20;
/// Longer names are cut (TensorFlow's longest has 9 KB).
const LONGEST_NAME: u64 = 32 << 10;
/// Most names are shorter than the first of these, nearly all than the second.
const USUAL_NAMES: [u64; 2] = [256, 2048];
/// How far back a function is looked for that covers an address: functions nest only where a symbol is inside another.
const NESTED: usize = 32;

/// A function: 16 bytes, as a library has half a million.
#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    size: u32,
    /// Place of its name in the string table.
    name: u32,
}

/// The functions of a file in order of address. Names stay in the file.
#[derive(Debug, Default)]
pub struct Functions {
    list: Vec<Function>,
    strings: Range,
}

/// The better of two symbols of one function comes later: global before weak before local, with a size before without.
fn rank(raw: &Sym64<LE>) -> u8 {
    let binding = match raw.st_bind() {
        elf::STB_GLOBAL => 2,
        elf::STB_WEAK => 1,
        _ => 0,
    };
    binding * 2 + if raw.st_size.get(LE) > 0 { 1 } else { 0 }
}

impl Elf {
    /// All functions of `.symtab`, or of `.dynsym` where there is no other. Empty: the file is stripped.
    ///
    /// # Errors
    /// When the tables cannot be read or make no sense.
    pub fn functions(&self) -> Result<Functions> {
        let found = match self.tables(Table::Full)? {
            Some(tables) => Some(tables),
            None => self.tables(Table::Dynamic)?,
        };
        let Some(tables) = found else { return Ok(Functions::default()) };
        if tables.symbols.size > MAX_SYMBOLS {
            return Err(ElfError::Damaged("an absurdly large symbol table"));
        }
        let size = size_of::<Sym64<LE>>() as u64;
        let (count, step) = (tables.symbols.size / size, WINDOW / size);
        let mut ranked: Vec<(Function, u8)> = Vec::new();
        for first in (0..count).step_by(step as usize) {
            let bytes = self.bytes(tables.symbols.offset + first * size, step.min(count - first) * size)?;
            ranked.extend(pods::<Sym64<LE>>(&bytes)?.iter().filter(|raw| is_code(raw)).map(|raw| {
                let function = Function {
                    start: raw.st_value.get(LE),
                    size: u32::try_from(raw.st_size.get(LE)).unwrap_or(u32::MAX),
                    name: raw.st_name.get(LE),
                };
                (function, rank(raw))
            }));
        }
        ranked.sort_by_key(|&(function, rank)| (function.start, rank, std::cmp::Reverse(function.name)));
        ranked.dedup_by(|better, kept| {
            let same = better.0.start == kept.0.start;
            if same {
                *kept = *better;
            }
            same
        });
        let list = ranked.into_iter().map(|(function, _)| function).collect();
        Ok(Functions { list, strings: tables.strings })
    }

    /// The name of a function that [`Functions::at`] found.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn function_name(&self, functions: &Functions, number: usize) -> Result<Vec<u8>> {
        let function = functions.list.get(number).ok_or(ElfError::Damaged("an index beyond its table"))?;
        let at = u64::from(function.name);
        let left = functions.strings.size.checked_sub(at).ok_or(ElfError::Damaged("a name outside its table"))?;
        let read = |size: u64| -> Result<(Vec<u8>, bool)> {
            let mut name = self.bytes(functions.strings.offset + at, size.min(left))?;
            let end = memchr::memchr(0, &name);
            name.truncate(end.unwrap_or(name.len()));
            Ok((name, end.is_some()))
        };
        for size in USUAL_NAMES {
            let (name, complete) = read(size)?;
            if complete {
                return Ok(name);
            }
        }
        read(LONGEST_NAME).map(|(name, _)| name)
    }
}

/// Functions, and labels of hand-written code that have no type.
fn is_code(raw: &Sym64<LE>) -> bool {
    let kind = matches!(raw.st_type(), elf::STT_FUNC | elf::STT_NOTYPE | elf::STT_GNU_IFUNC);
    kind && !matches!(raw.st_shndx.get(LE), elf::SHN_UNDEF | elf::SHN_ABS) && raw.st_name.get(LE) != 0
}

impl Functions {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The function that an address is in: its number. One without a size reaches to the next.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<usize> {
        let behind = self.list.partition_point(|function| function.start <= address);
        let covers = |&number: &usize| {
            let Some(function) = self.list.get(number) else { return false };
            let nearest = number + 1 == behind;
            address - function.start < u64::from(function.size) || nearest && function.size == 0
        };
        (behind.saturating_sub(NESTED)..behind).rev().find(covers)
    }
}
