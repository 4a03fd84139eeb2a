//! Which instruction of a function carries the probe.
//!
//! A probe replaces an instruction by a trap, so the kernel has to execute that instruction elsewhere. It emulates a
//! few kinds (cheap: one trap) and single-steps the rest (two traps; 9–18 µs against 0.6–1.2 µs in nested
//! virtualisation, about three times as much on bare metal). So the probe goes to the first cheap instruction at which
//! the function's arguments and its return address still are where the caller put them.
//!
//! The kinds, from `arch/x86/kernel/uprobes.c` (`branch_setup_xol_ops`, `push_setup_xol_ops`), the same from 5.15 on:
//! one-byte `nop` with any prefixes, `push` of a register, relative `jmp` and `call`, conditional jumps. Multi-byte
//! nops (`0f 1f`) became cheap in 6.18 only and count as expensive here.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register};

/// How far from the entry the probe may be: beyond this a function has done real work.
pub const REACH: usize = 64;
const MOST_INSTRUCTIONS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Bytes from the function's entry.
    pub delta: u64,
    /// The instruction, readable.
    pub instruction: String,
    pub cheap: bool,
    pub why: String,
}

/// Chooses the instruction for a function that starts with `head`. `registers`: how many of the integer argument
/// registers the probe reads. `body` is asked for the whole function only when the probe moves away from the entry:
/// an instruction that the function also jumps to would fire more than once for a call.
pub fn choose(head: &[u8], registers: u8, body: impl FnOnce() -> Vec<u8>) -> Choice {
    let head = head.get(..REACH.min(head.len())).unwrap_or(head);
    let mut decoder = Decoder::with_ip(64, head, 0, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    let mut first: Option<String> = None;
    let mut stopped = "it is the first of 16 instructions";
    for _ in 0..MOST_INSTRUCTIONS {
        if !decoder.can_decode() {
            stopped = "its code ends";
            break;
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            stopped = "an instruction could not be decoded";
            break;
        }
        let bytes = head.get(instruction.ip() as usize..instruction.next_ip() as usize).unwrap_or_default();
        let text = describe(&instruction, bytes);
        first.get_or_insert_with(|| text.clone());
        let delta = instruction.ip();
        if is_cheap(bytes) {
            if delta > 0 && jump_targets(&body()).contains(&delta) {
                stopped = "the first cheap instruction is also jumped to";
                break;
            }
            let why = if delta == 0 {
                "the entry itself is emulated by the kernel".to_owned()
            } else {
                format!("first instruction that the kernel emulates; arguments and stack are as at entry (+{delta})")
            };
            return Choice { delta, instruction: text, cheap: true, why };
        }
        if let Some(reason) = obstacle(&mut factory, &instruction, registers) {
            stopped = reason;
            break;
        }
    }
    let instruction = first.unwrap_or_else(|| "(unknown)".to_owned());
    Choice { delta: 0, instruction, cheap: false, why: format!("single-stepped: no cheaper place, {stopped}") }
}

/// Does the kernel emulate this instruction?
fn is_cheap(bytes: &[u8]) -> bool {
    match bytes {
        // push of a register, also the upper eight; one-byte nop, operand-size prefixes allowed
        [0x50..=0x57] | [0x41, 0x50..=0x57] | [0x90] | [0x66, 0x90] => true,
        // jmp and jcc, short and near; call
        [0xeb | 0x70..=0x7f, _] | [0xe9 | 0xe8, _, _, _, _] | [0x0f, 0x80..=0x8f, _, _, _, _] => true,
        _ => false,
    }
}

/// Why the probe cannot be put behind this instruction.
fn obstacle(factory: &mut InstructionInfoFactory, instruction: &Instruction, registers: u8) -> Option<&'static str> {
    // The System V calling convention's integer arguments, in order.
    const ARGUMENTS: [Register; 6] =
        [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
    if instruction.flow_control() != FlowControl::Next {
        return Some("the code branches before one");
    }
    let info = factory.info(instruction);
    if info.used_memory().iter().any(|m| writes(m.access())) {
        return Some("memory is written before one");
    }
    for used in info.used_registers().iter().filter(|r| writes(r.access())) {
        let full = used.register().full_register();
        if full == Register::RSP {
            return Some("the stack pointer moves before one");
        }
        if ARGUMENTS.iter().take(usize::from(registers)).any(|&argument| argument == full) {
            return Some("an argument is overwritten before one");
        }
    }
    None
}

const fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// Offsets that direct jumps inside the function go to.
fn jump_targets(body: &[u8]) -> HashSet<u64> {
    let mut targets = HashSet::new();
    for instruction in &mut Decoder::with_ip(64, body, 0, DecoderOptions::NONE) {
        if matches!(instruction.op0_kind(), OpKind::NearBranch64) {
            targets.insert(instruction.near_branch_target());
        }
    }
    targets
}

/// Mnemonic, registers and bytes: enough to recognise the instruction in a disassembly.
fn describe(instruction: &Instruction, bytes: &[u8]) -> String {
    let mut text = format!("{:?}", instruction.mnemonic()).to_lowercase();
    for operand in 0..instruction.op_count() {
        let shown = match instruction.op_kind(operand) {
            OpKind::Register => format!("{:?}", instruction.op_register(operand)).to_lowercase(),
            OpKind::Memory => "[…]".to_owned(),
            // Counted from the function's entry.
            OpKind::NearBranch64 => {
                let target = instruction.near_branch_target().cast_signed();
                format!("{}{:#x}", if target < 0 { '-' } else { '+' }, target.unsigned_abs())
            }
            _ => "…".to_owned(),
        };
        text.push_str(if operand == 0 { " " } else { "," });
        text.push_str(&shown);
    }
    text.push_str("  (");
    for (index, byte) in bytes.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { " " });
        text.push_str(&format!("{byte:02x}"));
    }
    text.push(')');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(code: &[u8], registers: u8) -> (u64, bool) {
        let choice = choose(code, registers, || code.to_vec());
        (choice.delta, choice.cheap)
    }

    #[test]
    fn push_at_entry_is_taken() {
        // push rbp; mov rbp,rsp
        assert_eq!(at(&[0x55, 0x48, 0x89, 0xe5], 6), (0, true));
        // push r15
        assert_eq!(at(&[0x41, 0x57, 0x41, 0x56], 6), (0, true));
    }

    #[test]
    fn the_jump_behind_a_compare_is_taken() {
        // cmp dword [rip+0x1234],1; je +5: the driver's stubs
        let code =
            [0x81, 0x3d, 0x34, 0x12, 0, 0, 1, 0, 0, 0, 0x74, 0x05, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3];
        let choice = choose(&code, 6, || code.to_vec());
        assert_eq!((choice.delta, choice.cheap), (10, true), "{choice:?}");
        assert!(choice.instruction.starts_with("je"), "{choice:?}");
    }

    #[test]
    fn endbr_is_stepped_over() {
        // endbr64; push rbp
        assert_eq!(at(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55], 6), (4, true));
        // endbr64; sub rsp,8; push rbx
        assert_eq!(at(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0x53], 6), (0, false));
    }

    #[test]
    fn an_argument_that_is_read_must_survive() {
        // mov rdx,rdi; cmp rsi,7; ja +8: 2.21's AlignedMalloc, which has two arguments
        let code = [0x48, 0x89, 0xfa, 0x48, 0x83, 0xfe, 0x07, 0x77, 0x08, 0x48, 0x89, 0xd7, 0xe9, 0, 0, 0, 0];
        assert_eq!(at(&code, 2), (7, true));
        assert_eq!(at(&code, 3), (0, false));
        // mov edi,[rdi]; push rbx: a 32-bit write clears the upper half
        assert_eq!(at(&[0x8b, 0x3f, 0x53], 1), (0, false));
        assert_eq!(at(&[0x8b, 0x3f, 0x53], 0), (2, true));
    }

    #[test]
    fn nothing_is_taken_behind_a_change_of_stack_memory_or_flow() {
        // sub rsp,0x18; push rbx
        assert_eq!(at(&[0x48, 0x83, 0xec, 0x18, 0x53], 6), (0, false));
        // mov [rdi],rax; push rbx
        assert_eq!(at(&[0x48, 0x89, 0x07, 0x53], 6), (0, false));
        // ret; push rbx
        assert_eq!(at(&[0xc3, 0x53], 6), (0, false));
        // jmp rax; push rbx
        assert_eq!(at(&[0xff, 0xe0, 0x53], 6), (0, false));
        // xchg rsp,rax; push rbx
        assert_eq!(at(&[0x48, 0x94, 0x53], 6), (0, false));
    }

    #[test]
    fn a_loop_head_is_not_taken() {
        // xor eax,eax; L: je +2; jmp L; ret
        let code = [0x31, 0xc0, 0x74, 0x02, 0xeb, 0xfc, 0xc3];
        assert_eq!(at(&code, 1), (0, false));
        // without the jump back
        assert_eq!(at(&[0x31, 0xc0, 0x74, 0x02, 0x90, 0x90, 0xc3], 1), (2, true));
    }

    #[test]
    fn prefixed_branches_and_long_nops_are_not_cheap() {
        assert!(!is_cheap(&[0x66, 0xe8, 0, 0]));
        assert!(!is_cheap(&[0xf2, 0xe9, 0, 0, 0, 0]));
        assert!(!is_cheap(&[0x0f, 0x1f, 0x44, 0, 0]));
        assert!(!is_cheap(&[0xff, 0x75, 0x08]), "push of memory");
        assert!(!is_cheap(&[0x6a, 0x01]), "push of a number");
        assert!(!is_cheap(&[0xe3, 0x10]), "jrcxz");
        assert!(is_cheap(&[0x66, 0x90]));
    }

    #[test]
    fn reach_is_limited_and_rubbish_is_survived() {
        let mut far = [0x48, 0x85, 0xff].repeat(17); // test rdi,rdi …
        far.push(0x55);
        assert_eq!(at(&far, 6), (0, false));
        assert_eq!(at(&[], 6), (0, false));
        assert_eq!(at(&[0x0f], 6), (0, false));
        for seed in 0..2000_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let code: Vec<u8> = (0..48)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                })
                .collect();
            let choice = choose(&code, (seed % 7) as u8, || code.clone());
            assert!(choice.delta < REACH as u64);
        }
    }
}
