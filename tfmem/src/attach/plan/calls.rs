//! Which functions a function calls, as far as its own code says so: direct calls and tail calls, those through a
//! stub of the procedure linkage table, and those through a word of the global offset table (`-fno-plt`).

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use crate::attach::elf::{Elf, Result, Symbol, Table};

/// A function larger than this is not read (`AllocateRawInternal` has 2 KiB in the wheels).
const LARGEST: u64 = 256 << 10;
/// A stub is at most `endbr64; bnd jmp *slot(%rip)`.
const STUB: u64 = 16;

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Address(u64),
    /// Whatever the word at this address holds.
    Slot(u64),
}

/// A function, and the words through which this library calls it.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: &'static str,
    pub symbol: Symbol,
    slots: Vec<u64>,
}

impl Function {
    pub const fn new(name: &'static str, symbol: Symbol) -> Self {
        Self { name, symbol, slots: Vec::new() }
    }

    pub fn is_called_by(&self, targets: &[Target]) -> bool {
        targets.iter().any(|&target| self.is(target))
    }

    pub fn is(&self, target: Target) -> bool {
        match target {
            Target::Address(address) => address == self.symbol.value,
            Target::Slot(slot) => self.slots.contains(&slot),
        }
    }
}

/// Looks up the slots of some functions, in one pass. Relocations of the linkage table are few; `everywhere` takes in
/// all others too.
pub fn find_slots(elf: &Elf, functions: &mut [&mut Function], everywhere: bool) -> Result<()> {
    let dynamic = |f: &Function| f.symbol.table == Table::Dynamic;
    let wanted: Vec<u32> = functions.iter().filter(|f| dynamic(f)).map(|f| f.symbol.index).collect();
    let found = elf.function_slots(&wanted, everywhere)?;
    for function in functions.iter_mut().filter(|f| dynamic(f)) {
        let own = found.iter().filter(|(index, _)| *index == function.symbol.index);
        function.slots = own.map(|&(_, slot)| slot).collect();
    }
    Ok(())
}

/// The function's code, decoded from its start to its end.
pub fn code(elf: &Elf, symbol: &Symbol) -> Result<Vec<Instruction>> {
    let bytes = elf.at(symbol.value, symbol.size.min(LARGEST))?;
    Ok(Decoder::with_ip(64, &bytes, symbol.value, DecoderOptions::NONE).into_iter().collect())
}

/// Where the function calls or jumps to, outside itself.
pub fn targets(elf: &Elf, symbol: &Symbol) -> Result<Vec<Target>> {
    let code = code(elf, symbol)?;
    let inside = |address: u64| address.wrapping_sub(symbol.value) < symbol.size;
    let outside = |target: &Target| !matches!(*target, Target::Address(address) if inside(address));
    Ok(code.iter().filter_map(target).filter(outside).map(|t| through_stub(elf, t)).collect())
}

/// Where this one instruction goes to, if it says so.
pub fn target(instruction: &Instruction) -> Option<Target> {
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            (instruction.op0_kind() == OpKind::NearBranch64).then(|| Target::Address(instruction.near_branch_target()))
        }
        FlowControl::IndirectCall | FlowControl::IndirectBranch => (instruction.op0_kind() == OpKind::Memory
            && instruction.is_ip_rel_memory_operand())
        .then(|| Target::Slot(instruction.ip_rel_memory_address())),
        _ => None,
    }
}

/// A stub of the linkage table only jumps to what its slot holds.
pub fn through_stub(elf: &Elf, target: Target) -> Target {
    let Target::Address(address) = target else { return target };
    let Ok(bytes) = elf.at(address, STUB) else { return target };
    let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
    let mut first = decoder.decode();
    if first.mnemonic() == iced_x86::Mnemonic::Endbr64 {
        first = decoder.decode();
    }
    match self::target(&first) {
        Some(slot @ Target::Slot(_)) if first.flow_control() == FlowControl::IndirectBranch => slot,
        _ => target,
    }
}
