//! TensorFlow's thread-local note of the op that allocates: where it is and how it is laid out.

use serde::{Deserialize, Serialize};
use tfmem_common::config::{ANNOTATION_CSTR, ANNOTATION_VIEW};

use super::Plan;
use crate::attach::elf::{Elf, ModuleSlot, Result, TlsVariable};
use crate::catalogue::ANNOTATION;

/// How to find the annotation of a thread: thread pointer → DTV → block of the module whose number stands at
/// `module_slot` → `symbol_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// Offset in the library's thread-local block.
    pub symbol_offset: u64,
    /// Address (add the load base) of a word that holds the library's TLS module number.
    pub module_slot_vaddr: u64,
    pub layout: Layout,
    /// The function that returns the annotation's address, in this library.
    pub getter_vaddr: u64,
    /// Address (add the load base) of the word through which this library calls that function. Where several
    /// libraries define it, all call one copy: this library's variable is in use only if the word leads to
    /// `getter_vaddr`.
    pub getter_slot_vaddr: Option<u64>,
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
    let module_slot_vaddr = match elf.module_slot()? {
        ModuleSlot::At(at) => at,
        ModuleSlot::None(reason) => return Ok(Err(reason.to_owned())),
    };
    Ok(Ok(Annotation {
        symbol_offset: variable.offset,
        module_slot_vaddr,
        layout,
        getter_vaddr,
        getter_slot_vaddr: elf.function_slots(getter_index)?.first().copied(),
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
