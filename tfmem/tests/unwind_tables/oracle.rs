//! What call frame information says, word for word: each rule evaluated as DWARF defines it, by gimli.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, LittleEndian, Location, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _, Value, X86_64,
};
use tfmem_common::unwind::Registers;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

pub struct Oracle {
    pub frames: (u64, Vec<u8>),
    pub header: (u64, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Caller(Registers),
    /// Nothing called it.
    Outermost,
    /// The information does not know the code.
    Unknown,
    /// The rule needs a register that is not followed.
    Needs(Register),
}

impl Oracle {
    /// The caller of the code at `address`.
    pub fn ask(&self, address: u64, at: Registers, memory: &dyn Fn(u64) -> u64) -> Answer {
        let bases = BaseAddresses::default().set_eh_frame(self.frames.0).set_eh_frame_hdr(self.header.0);
        let section = EhFrame::new(&self.frames.1, LittleEndian);
        let header = EhFrameHdr::new(&self.header.1, LittleEndian).parse(&bases, 8).unwrap();
        let mut context = UnwindContext::new();
        let found = header.table().unwrap().unwind_info_for_address(
            &section,
            &bases,
            &mut context,
            address,
            |section, bases, offset| section.cie_from_offset(bases, offset),
        );
        let Ok(row) = found else { return Answer::Unknown };
        let walk = Walk { section: &section, at, memory };
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => match walk.register(*register) {
                Ok(value) => value.wrapping_add_signed(*offset),
                Err(register) => return Answer::Needs(register),
            },
            CfaRule::Expression(expression) => match walk.evaluate(*expression, None) {
                Ok(value) => value,
                Err(register) => return Answer::Needs(register),
            },
        };
        if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
            return Answer::Outermost;
        }
        let value = |register, default: u64| match row.register(register) {
            None | Some(RegisterRule::SameValue) => Ok(default),
            Some(RegisterRule::Undefined) => Ok(0),
            Some(RegisterRule::Offset(offset)) => Ok(memory(frame.wrapping_add_signed(offset))),
            Some(RegisterRule::Expression(expression)) => Ok(memory(walk.evaluate(expression, Some(frame))?)),
            Some(RegisterRule::Register(other)) => walk.register(other),
            other => panic!("{other:?} of {register:?}"),
        };
        let (pc, bp) = (value(X86_64::RA, at.pc), value(X86_64::RBP, at.bp));
        match (pc, bp) {
            (Ok(pc), Ok(bp)) => Answer::Caller(Registers { pc, sp: frame, bp }),
            (Err(register), _) | (_, Err(register)) => Answer::Needs(register),
        }
    }
}

struct Walk<'a, 's> {
    section: &'a EhFrame<Slice<'s>>,
    at: Registers,
    memory: &'a dyn Fn(u64) -> u64,
}

impl Walk<'_, '_> {
    const fn register(&self, register: Register) -> Result<u64, Register> {
        match register {
            X86_64::RSP => Ok(self.at.sp),
            X86_64::RBP => Ok(self.at.bp),
            X86_64::RA => Ok(self.at.pc),
            other => Err(other),
        }
    }

    fn evaluate(&self, expression: UnwindExpression<usize>, first: Option<u64>) -> Result<u64, Register> {
        let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
        let mut evaluation = expression.get(self.section).unwrap().evaluation(encoding);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic((self.memory)(address))).unwrap()
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.register(register)?;
                    evaluation.resume_with_register(Value::Generic(value)).unwrap()
                }
                other => panic!("{other:?}"),
            };
        }
        match evaluation.result()[0].location {
            Location::Address { address } => Ok(address),
            ref other => panic!("{other:?}"),
        }
    }
}
