//! Where a library's thread-local variables are found at run time, and which library's copy of a function is used.
//!
//! The dynamic linker gives every library with thread-local variables a module number. Code finds a variable of its
//! own library through two words in the global offset table: the module number, filled in by an
//! `R_X86_64_DTPMOD64` relocation, and the offset (U. Drepper, "ELF Handling For Thread-Local Storage", 4.4.6).

use object::LittleEndian as LE;
use object::elf::{self, Rela64};

use super::{Elf, Range, Result, Symbol, Table, pods};

/// Bytes read at a time when relocations are walked.
const WINDOW: u64 = 1 << 20;

/// A thread-local variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsVariable {
    pub name: String,
    /// Number in the full symbol table.
    pub index: u32,
    /// Offset in the library's thread-local block.
    pub offset: u64,
    pub size: u64,
}

/// Where the module number of a library stands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleSlot {
    /// Address (before relocation) of the word, and the number of the relocation that fills it.
    At { vaddr: u64, relocation: u32 },
    /// None, for this reason.
    None(&'static str),
}

impl Elf {
    /// Thread-local variables whose name `wanted` accepts. They are local symbols: only an unstripped file has them.
    pub fn thread_locals(&self, wanted: &dyn Fn(&[u8]) -> bool) -> Result<Vec<TlsVariable>> {
        if !self.has_tls {
            return Ok(Vec::new());
        }
        let hits = self.scan_thread_locals(Table::Full, wanted)?;
        Ok(hits
            .into_iter()
            .map(|hit| {
                let Symbol { index, value, size, .. } = hit.symbol;
                TlsVariable { name: hit.name, index, offset: value, size }
            })
            .collect())
    }

    /// The word that holds this library's own module number once the library is loaded.
    ///
    /// Only relocations without a symbol count: they are about the library itself, while a named variable may be
    /// bound to another library's copy.
    pub fn module_slot(&self) -> Result<ModuleSlot> {
        let Some(dynamic) = self.dynamic else {
            return Ok(ModuleSlot::None("a static program: its variables are at fixed places, without module numbers"));
        };
        if !self.has_tls {
            return Ok(ModuleSlot::None("the library has no thread-local variables"));
        }
        let mut slot = None;
        let mut descriptors = false;
        if let Some(range) = self.relocations((dynamic.rela, dynamic.rela_size))? {
            self.walk_relocations(range, &mut |relocation, item| {
                descriptors |= item.r_type(LE, false) == elf::R_X86_64_TLSDESC;
                if is_own_module(item) {
                    slot = Some(ModuleSlot::At { vaddr: item.r_offset.get(LE), relocation });
                }
                slot.is_none()
            })?;
        }
        Ok(match slot {
            Some(slot) => slot,
            None if descriptors => ModuleSlot::None("built with TLS descriptors: no word holds the module number"),
            None if self.is_executable() => ModuleSlot::None("a program: its variables need no module number"),
            None => ModuleSlot::None("no relocation asks for the library's own module number"),
        })
    }

    /// Is `slot` really what it says? One read instead of a walk.
    pub fn has_module_slot(&self, vaddr: u64, relocation: u32) -> Result<bool> {
        let Some(dynamic) = self.dynamic else { return Ok(false) };
        let Some(range) = self.relocations((dynamic.rela, dynamic.rela_size))? else { return Ok(false) };
        let item: Rela64<LE> = self.value(range, u64::from(relocation))?;
        Ok(is_own_module(&item) && item.r_offset.get(LE) == vaddr)
    }

    /// The word of the global offset table that holds the address of the dynamic symbol number `index` once bound.
    pub fn function_slot(&self, index: u32) -> Result<Option<u64>> {
        let Some(dynamic) = self.dynamic else { return Ok(None) };
        let mut slot = None;
        for range in [(dynamic.plt_rela, dynamic.plt_rela_size), (dynamic.rela, dynamic.rela_size)] {
            let Some(range) = self.relocations(range)? else { continue };
            self.walk_relocations(range, &mut |_, item| {
                let kind = item.r_type(LE, false);
                if item.r_sym(LE, false) == index && matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) {
                    slot = Some(item.r_offset.get(LE));
                }
                slot.is_none()
            })?;
            if slot.is_some() {
                break;
            }
        }
        Ok(slot)
    }

    /// The words that hold the addresses of these dynamic symbols once bound, with the symbol's number: those of the
    /// procedure linkage table, or, with `everywhere`, those of the global offset table too.
    pub fn function_slots(&self, indices: &[u32], everywhere: bool) -> Result<Vec<(u32, u64)>> {
        let Some(dynamic) = self.dynamic else { return Ok(Vec::new()) };
        let mut slots = Vec::new();
        let others = everywhere.then_some((dynamic.rela, dynamic.rela_size));
        for range in [Some((dynamic.plt_rela, dynamic.plt_rela_size)), others].into_iter().flatten() {
            let Some(range) = self.relocations(range)? else { continue };
            self.walk_relocations(range, &mut |_, item| {
                let kind = item.r_type(LE, false);
                let index = item.r_sym(LE, false);
                if matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) && indices.contains(&index) {
                    slots.push((index, item.r_offset.get(LE)));
                }
                true
            })?;
        }
        Ok(slots)
    }

    fn relocations(&self, (at, size): (Option<u64>, u64)) -> Result<Option<Range>> {
        match at {
            Some(at) if size > 0 => self.table_at(at, size).map(Some),
            _ => Ok(None),
        }
    }

    /// Hands relocations to `visit` until it says that it has seen enough.
    fn walk_relocations(&self, range: Range, visit: &mut dyn FnMut(u32, &Rela64<LE>) -> bool) -> Result<()> {
        let size = size_of::<Rela64<LE>>() as u64;
        let count = range.size / size;
        let step = WINDOW / size;
        for first in (0..count).step_by(step as usize) {
            let bytes = self.bytes(range.offset + first * size, step.min(count - first) * size)?;
            for (index, item) in (first..).zip(pods::<Rela64<LE>>(&bytes)?) {
                let Ok(index) = u32::try_from(index) else { return Ok(()) };
                if !visit(index, item) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// "Write the module number of the library that holds this relocation" is one that names no symbol.
fn is_own_module(item: &Rela64<LE>) -> bool {
    item.r_type(LE, false) == elf::R_X86_64_DTPMOD64 && item.r_sym(LE, false) == 0
}
