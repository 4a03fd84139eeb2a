//! Which functions of this very file report the chunks of its pools.
//!
//! `BFCAllocator::AddTraceMe` has two forms: one takes the chunk's sizes, the other looks them up and passes them on
//! to the first. `AllocateRawInternal` reports through either, `DeallocateRawInternal` through the first, unless the
//! compiler has put the body where the call was: in 2.18.1 the short form and `DeallocateRawInternal` hold the long
//! one's body, and a probe on the long form sees nothing at all. (Wheels read: 2.12.0, 2.15.1, 2.16.2, 2.17.1,
//! 2.18.1, 2.19.1, 2.20.0, 2.21.0.) So the code is asked who calls whom. A probe goes only where a call was found,
//! and either both directions are seen or none is traced: chunks that are taken and never come back would be
//! reported as held.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use tfmem_common::cookie::PoolLayout;

use super::calls::{self, Function, Target};
use crate::attach::elf::{Elf, Result, Symbol, Table};
use crate::catalogue::{POOLS, PoolSymbols, Program};

/// `RegionManager` has one member, the vector of regions; `chunks_` is the allocator's next member
/// (tsl/framework/bfc_allocator.h, the same in all wheels read).
const REGION_MANAGER_SIZE: u32 = 24;
/// No allocator is larger: a number beyond is a misreading.
const LARGEST_OFFSET: u32 = 64 << 10;

/// A function that gets a probe for chunks.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub program: Program,
    pub name: &'static str,
    pub symbol: Symbol,
    pub cookie: u64,
}

#[derive(Clone, Debug)]
pub enum Reporters {
    /// The file has no pool allocator.
    NoPools,
    Found(Vec<Reporter>),
    /// Chunks cannot be seen, for this reason.
    Unknown(String),
}

/// Reads the code. `full`: the file has pools, but does not export all of their functions.
pub fn find(elf: &Elf, full: bool) -> Result<Reporters> {
    for names in POOLS {
        let Some(mut pools) = Pools::find(elf, names, full)? else { continue };
        let mut reporters = Err(String::new());
        for everywhere in [false, true] {
            calls::find_slots(elf, &mut pools.functions(), everywhere)?;
            reporters = pools.reporters(elf)?;
            if reporters.is_ok() {
                break;
            }
        }
        return Ok(match reporters {
            Ok(list) => Reporters::Found(list),
            Err(why) => Reporters::Unknown(format!("{why}; the chunks of pools cannot be seen")),
        });
    }
    Ok(Reporters::NoPools)
}

/// The functions that matter, where the file has them.
struct Pools {
    long: Option<Function>,
    short: Option<Function>,
    take: Option<Function>,
    give_back: Option<Function>,
    give_back_internal: Option<Function>,
    region_for: Option<Function>,
    chunk_from_handle: Option<Function>,
}

impl Pools {
    /// `None`: the file has no pools of this namespace.
    fn find(elf: &Elf, names: &PoolSymbols, full: bool) -> Result<Option<Self>> {
        let all = names.all();
        let mut hidden = Vec::new();
        let mut exported = Vec::new();
        for name in all {
            exported.push(elf.lookup(name)?.filter(|symbol| symbol.function));
        }
        let lacks = |name: &str| all.iter().zip(&exported).any(|(n, symbol)| *n == name && symbol.is_none());
        let partly = exported.iter().any(Option::is_some)
            && [names.take, names.give_back, names.give_back_internal].into_iter().any(lacks);
        // A pass over the full table takes seconds in libtensorflow_cc, which has no pools.
        if full || partly {
            hidden = elf.scan(Table::Full, &|name| all.iter().any(|n| n.as_bytes() == name))?;
        }
        let get = |name: &'static str| {
            let at = all.iter().position(|n| *n == name);
            let symbol = at.and_then(|at| exported.get(at).copied().flatten());
            let symbol = symbol.or_else(|| hidden.iter().find(|hit| hit.name == name).map(|hit| hit.symbol));
            symbol.map(|symbol| Function::new(name, symbol))
        };
        let pools = Self {
            long: get(names.long),
            short: get(names.short),
            take: get(names.take),
            give_back: get(names.give_back),
            give_back_internal: get(names.give_back_internal),
            region_for: get(names.region_for),
            chunk_from_handle: get(names.chunk_from_handle),
        };
        let here = pools.long.is_some() || pools.short.is_some() || pools.take.is_some();
        Ok(here.then_some(pools))
    }

    fn functions(&mut self) -> Vec<&mut Function> {
        [&mut self.long, &mut self.short, &mut self.give_back_internal, &mut self.region_for]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Who reports, or why nobody can be proven to.
    fn reporters(&self, elf: &Elf) -> Result<std::result::Result<Vec<Reporter>, String>> {
        let Some(take) = &self.take else { return Ok(Err("AllocateRawInternal has no symbol".to_owned())) };
        let Some(internal) = &self.give_back_internal else {
            return Ok(Err("DeallocateRawInternal has no symbol".to_owned()));
        };
        let of = |function: &Option<Function>| match function {
            Some(function) => calls::targets(elf, &function.symbol),
            None => Ok(Vec::new()),
        };
        let calls = |targets: &[Target], to: &Option<Function>| to.as_ref().is_some_and(|f| f.is_called_by(targets));

        let passes_on = calls(&of(&self.short)?, &self.long);
        let taking = calls::targets(elf, &take.symbol)?;
        let (long, short) = (calls(&taking, &self.long), calls(&taking, &self.short));
        let mut by_long = long || (short && passes_on);
        let mut by_short = short && !passes_on;
        if !by_long && !by_short {
            return Ok(Err("AllocateRawInternal calls neither form of AddTraceMe (inlined)".to_owned()));
        }
        let giving_back = calls::targets(elf, &internal.symbol)?;
        let (long, short) = (calls(&giving_back, &self.long), calls(&giving_back, &self.short));
        let mut by_internal = false;
        if long || (short && passes_on) {
            by_long = true;
        } else if short {
            by_short = true;
        } else if internal.is_called_by(&of(&self.give_back)?) {
            by_internal = true;
        } else {
            let why = "DeallocateRawInternal does not call AddTraceMe, and DeallocateRaw does not call it (inlined)";
            return Ok(Err(why.to_owned()));
        }

        let mut list = Vec::new();
        let mut add = |program, function: &Function, cookie| {
            list.push(Reporter { program, name: function.name, symbol: function.symbol, cookie });
        };
        if let Some(long) = self.long.as_ref().filter(|_| by_long) {
            add(Program::Chunk, long, 0);
        }
        if let Some(short) = self.short.as_ref().filter(|_| by_short) {
            let Some(layout) = self.layout(elf, short)? else {
                return Ok(Err("where a pool keeps its chunks could not be read from AddTraceMe's code".to_owned()));
            };
            add(Program::ChunkShort, short, layout.pack());
        }
        if by_internal {
            add(Program::ChunkGivenBack, internal, 0);
        }
        Ok(Ok(list))
    }

    /// Where a pool keeps its regions and chunks, from the code of the short form: it calls `RegionFor` on the region
    /// manager, which is inside the pool, and reads `chunks_` (by itself or through `ChunkFromHandle`).
    fn layout(&self, elf: &Elf, short: &Function) -> Result<Option<PoolLayout>> {
        let Some(region_for) = &self.region_for else { return Ok(None) };
        let code = calls::code(elf, &short.symbol)?;
        let is_region_for = |target| region_for.is(target) || region_for.is(calls::through_stub(elf, target));
        let Some((regions, holders)) = member_passed(&code, is_region_for) else { return Ok(None) };
        let chunks = regions + REGION_MANAGER_SIZE;
        let mut seen = reads(&code, &holders, chunks);
        if let Some(accessor) = self.chunk_from_handle.as_ref().filter(|_| !seen) {
            seen = reads(&calls::code(elf, &accessor.symbol)?, &[Register::RDI], chunks);
        }
        Ok(seen.then_some(PoolLayout { regions, chunks }))
    }
}

/// The offset that was added to the function's first argument before it was passed on, as the first argument, to the
/// function that `wanted` recognises; and the registers that hold the unchanged argument then.
fn member_passed(code: &[Instruction], wanted: impl Fn(Target) -> bool) -> Option<(u32, Vec<Register>)> {
    let mut factory = InstructionInfoFactory::new();
    let mut holders = vec![Register::RDI];
    let mut member = None;
    for instruction in code {
        if calls::target(instruction).is_some_and(&wanted) {
            return member.filter(|&offset| offset < LARGEST_OFFSET).map(|offset| (offset, holders));
        }
        let holds = |register: Register| holders.contains(&register);
        let next = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register && holds(instruction.op1_register()) => {
                Some((instruction.op0_register(), None))
            }
            Mnemonic::Add if instruction.op0_register() == Register::RDI && holds(Register::RDI) => {
                Some((Register::None, u32::try_from(instruction.immediate(1)).ok()))
            }
            Mnemonic::Lea
                if instruction.op0_register() == Register::RDI
                    && instruction.memory_index() == Register::None
                    && holds(instruction.memory_base()) =>
            {
                Some((Register::None, u32::try_from(instruction.memory_displacement64()).ok()))
            }
            _ => None,
        };
        for used in factory.info(instruction).used_registers() {
            if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None) {
                let written = used.register().full_register();
                holders.retain(|&held| held != written);
                if written == Register::RDI {
                    member = None;
                }
            }
        }
        match next {
            Some((Register::None, offset)) => member = offset,
            Some((copy, _)) if copy != Register::RDI => holders.push(copy),
            _ => {}
        }
    }
    None
}

/// Does the code read the eight bytes at `offset` from one of these registers?
fn reads(code: &[Instruction], bases: &[Register], offset: u32) -> bool {
    code.iter().any(|i| {
        let memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
        memory
            && i.mnemonic() != Mnemonic::Lea
            && i.memory_index() == Register::None
            && i.memory_displacement64() == u64::from(offset)
            && i.memory_size().size() == 8
            && bases.contains(&i.memory_base())
    })
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn member(code: &[u8]) -> Option<u32> {
        let code: Vec<_> = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().collect();
        member_passed(&code, |target| target == Target::Address(0x105)).map(|(offset, _)| offset)
    }

    /// `call 0x105` at `at`.
    fn call(mut code: Vec<u8>) -> Vec<u8> {
        let displacement = 0x105 - (code.len() as i32 + 5);
        code.push(0xe8);
        code.extend(displacement.to_le_bytes());
        code
    }

    #[test]
    fn a_member_is_recognised_as_compilers_pass_it() {
        // mov r12,rdi; add rdi,0x570; mov rsi,rcx: clang
        let clang = [0x49, 0x89, 0xfc, 0x48, 0x81, 0xc7, 0x70, 5, 0, 0, 0x48, 0x89, 0xce];
        assert_eq!(member(&call(clang.to_vec())), Some(0x570));
        // mov r12,rdi; lea rdi,[rdi+0x588]: gcc
        assert_eq!(member(&call(vec![0x49, 0x89, 0xfc, 0x48, 0x8d, 0xbf, 0x88, 5, 0, 0])), Some(0x588));
        // mov r12,rdi; xor edi,edi; lea rdi,[r12+0x570]
        let copied = vec![0x49, 0x89, 0xfc, 0x31, 0xff, 0x49, 0x8d, 0xbc, 0x24, 0x70, 5, 0, 0];
        assert_eq!(member(&call(copied)), Some(0x570));
    }

    #[test]
    fn what_is_not_clearly_a_member_is_not_taken() {
        assert_eq!(member(&call(vec![])), None, "the pool itself");
        // lea rdi,[rsi+0x588]
        assert_eq!(member(&call(vec![0x48, 0x8d, 0xbe, 0x88, 5, 0, 0])), None);
        // add rdi,0x570; mov edi,eax
        assert_eq!(member(&call(vec![0x48, 0x81, 0xc7, 0x70, 5, 0, 0, 0x89, 0xc7])), None);
        // add rdi,0x570, and another call
        assert_eq!(member(&[0x48, 0x81, 0xc7, 0x70, 5, 0, 0, 0xe8, 0, 0, 0, 0]), None);
        // add rdi,-8
        assert_eq!(member(&call(vec![0x48, 0x83, 0xc7, 0xf8])), None);
    }
}
