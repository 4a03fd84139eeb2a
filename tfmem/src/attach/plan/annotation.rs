//! TensorFlow's thread-local note of the op that allocates: where it is and how it is laid out.

use serde::{Deserialize, Serialize};
use tfmem_common::config::{ANNOTATION_CSTR, ANNOTATION_VIEW};

use super::Plan;
use crate::attach::elf::{Elf, ModuleSlot, Result, Table, TlsVariable};
use crate::catalogue::ANNOTATION;

/// How to find the annotation of a thread: thread pointer → DTV → block of the module whose number stands at
/// `module_slot` → `symbol_offset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// Mangled name of the variable, and its number in the full symbol table.
    pub symbol: String,
    pub symbol_index: u32,
    /// Offset in the library's thread-local block.
    pub symbol_offset: u64,
    /// Address (add the load base) of a word that holds the library's TLS module number.
    pub module_slot_vaddr: u64,
    /// Number of the relocation that fills it.
    pub relocation: u32,
    pub layout: Layout,
    /// The function that returns the annotation's address, in this library.
    pub getter_vaddr: u64,
    /// Address (add the load base) of the word through which this library calls that function, see
    /// [`Annotation::in_use`].
    pub getter_slot_vaddr: Option<u64>,
    /// Bytes from the load base to the end of the library's last segment.
    pub image_size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// `{ char* op; i64 step; char* region; i32 dtype; … }`
    CStr,
    /// `{ string_view op; i64 step; string_view region; i32 dtype; … }`
    View,
}

impl Layout {
    /// The number on the BPF side.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::CStr => ANNOTATION_CSTR,
            Self::View => ANNOTATION_VIEW,
        }
    }
}

impl Annotation {
    /// Is this library's variable the one that the process uses?
    ///
    /// Up to 2.18 both of TensorFlow's libraries define it, and the dynamic linker lets both call one copy of the
    /// function that returns it: that of the library loaded first (the framework's in Python, 2.15.1; that of
    /// libtensorflow_cc in a program linked with it before the framework).
    ///
    /// `base`: where the library is loaded. `word` reads eight bytes of the process. `None`: not bound yet (lazy binding
    /// leaves the way to the linker in the word), or not known.
    pub fn in_use(&self, base: u64, word: impl Fn(u64) -> Option<u64>) -> Option<bool> {
        let called = word(base.wrapping_add(self.getter_slot_vaddr?))?;
        let stub = called.wrapping_sub(base) < self.image_size && called != base.wrapping_add(self.getter_vaddr);
        (called != 0 && !stub).then(|| called == base.wrapping_add(self.getter_vaddr))
    }

    pub(super) fn fits(&self, elf: &Elf) -> bool {
        let variable = elf.symbol_at(Table::Full, self.symbol_index, &self.symbol);
        matches!(variable, Ok(Some(found)) if found.thread_local && found.value == self.symbol_offset)
            && elf.has_module_slot(self.module_slot_vaddr, self.relocation).unwrap_or(false)
    }
}

impl Plan {
    pub(super) fn find_annotation(&mut self, elf: &Elf) -> Result<()> {
        let mut getter = None;
        for name in ANNOTATION.getters {
            getter = getter.or(elf.lookup(name)?);
        }
        // A library without the function has no annotation of its own; that is no defect.
        let Some(getter) = getter else { return Ok(()) };
        match find(elf, getter.value, getter.index)? {
            Ok(annotation) => self.annotation = Some(annotation),
            Err(reason) => self.annotation_missing = Some(reason),
        }
        Ok(())
    }
}

fn find(elf: &Elf, getter_vaddr: u64, getter_index: u32) -> Result<std::result::Result<Annotation, String>> {
    let wanted = |name: &[u8]| {
        name.starts_with(ANNOTATION.variable_prefix.as_bytes()) && name.ends_with(ANNOTATION.variable_suffix.as_bytes())
    };
    let variables = elf.thread_locals(&wanted)?;
    let variable = match variables.as_slice() {
        [one] => one,
        [] => return Ok(Err("its thread-local variable has no symbol: the library is stripped".to_owned())),
        _ => return Ok(Err("several thread-local variables bear its name".to_owned())),
    };
    let layout = match layout(elf, variable)? {
        Ok(layout) => layout,
        Err(reason) => return Ok(Err(reason)),
    };
    let (module_slot_vaddr, relocation) = match elf.module_slot()? {
        ModuleSlot::At { vaddr, relocation } => (vaddr, relocation),
        ModuleSlot::None(reason) => return Ok(Err(reason.to_owned())),
    };
    Ok(Ok(Annotation {
        symbol: variable.name.clone(),
        symbol_index: variable.index,
        symbol_offset: variable.offset,
        module_slot_vaddr,
        relocation,
        layout,
        getter_vaddr,
        getter_slot_vaddr: elf.function_slot(getter_index)?,
        image_size: elf.image_size(),
    }))
}

/// Two witnesses: the variable's size, and the signature of its constructors. Both are enough alone, but they must
/// not contradict each other.
fn layout(elf: &Elf, variable: &TlsVariable) -> Result<std::result::Result<Layout, String>> {
    let by_size = match variable.size {
        size if size == ANNOTATION.cstr_size => Some(Layout::CStr),
        size if size == ANNOTATION.view_size => Some(Layout::View),
        _ => None,
    };
    let cstr = any(elf, ANNOTATION.cstr_constructors)?;
    let view = any(elf, ANNOTATION.view_constructors)?;
    let by_signature = match (cstr, view) {
        (true, false) => Some(Layout::CStr),
        (false, true) => Some(Layout::View),
        _ => None,
    };
    Ok(match (by_size, by_signature) {
        (Some(layout), None) => Ok(layout),
        (Some(a), Some(b)) if a == b => Ok(a),
        (None, _) => Err(format!("its layout is not known: {} bytes", variable.size)),
        _ => Err(format!("its size ({} bytes) and its constructors disagree about its layout", variable.size)),
    })
}

fn any(elf: &Elf, names: &[&str]) -> Result<bool> {
    for name in names {
        if elf.lookup(name)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
