//! One row of call frame information as a [`Rule`].

use gimli::{CfaRule, EhFrame, Register, RegisterRule, UnwindExpression, UnwindTableRow, X86_64};
use tfmem_common::unwind::{
    KIND_PLT, KIND_RBP, KIND_RBP_DEREF, KIND_RSP, KIND_RSP_DEREF, KIND_SIGNAL, RBP_AT_RBP, RBP_UNDEFINED, Rule,
    SIGNAL_PC_BEHIND, SIGNAL_RBP_BEFORE,
};

use super::entries::Slice;

/// Operations of DWARF expressions (DWARF 5, 7.7.1).
const BREG_RBP: u8 = 0x76;
const BREG_RSP: u8 = 0x77;
const DEREF: u8 = 0x06;
const PLUS_UCONST: u8 = 0x23;
const LIT0: u8 = 0x30;

/// What holds in a row. Anything that is not exactly one of the kinds is [`Rule::UNSUPPORTED`], never a guess.
#[must_use]
pub fn rule(section: &EhFrame<Slice<'_>>, row: &UnwindTableRow<usize>) -> Rule {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => return Rule::END,
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Expression(place)) => return signal(section, row, place).unwrap_or(Rule::UNSUPPORTED),
        _ => return Rule::UNSUPPORTED,
    }
    cfa(section, row)
        .and_then(|(kind, offset)| Some(Rule::new(kind, rbp(section, row, kind)?, offset)))
        .unwrap_or(Rule::UNSUPPORTED)
}

fn cfa(section: &EhFrame<Slice<'_>>, row: &UnwindTableRow<usize>) -> Option<(u32, i16)> {
    match *row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => Some((KIND_RSP, words(offset)?)),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => Some((KIND_RBP, words(offset)?)),
        CfaRule::RegisterAndOffset { .. } => None,
        CfaRule::Expression(expression) => of_expression(bytes(section, expression)?),
    }
}

fn of_expression(bytes: &[u8]) -> Option<(u32, i16)> {
    // breg7 8; breg16 0; lit15; and; lit N; ge; lit3; shl; plus
    if let [BREG_RSP, 8, 0x80, 0, 0x3f, 0x1a, lit, 0x2a, 0x33, 0x24, 0x22] = *bytes {
        return matches!(lit, LIT0..=0x3f).then(|| (KIND_PLT, i16::from(lit - LIT0)));
    }
    let (&register, rest) = bytes.split_first()?;
    let (offset, rest) = signed(rest)?;
    match (register, rest) {
        (BREG_RBP, [DEREF]) => Some((KIND_RBP_DEREF, words(offset)?)),
        (BREG_RSP, [DEREF, PLUS_UCONST, 8]) => Some((KIND_RSP_DEREF, words(offset)?)),
        _ => None,
    }
}

/// Where the caller's frame pointer is.
fn rbp(section: &EhFrame<Slice<'_>>, row: &UnwindTableRow<usize>, kind: u32) -> Option<u32> {
    match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => Some(0),
        Some(RegisterRule::Undefined) => Some(RBP_UNDEFINED),
        Some(RegisterRule::Offset(offset)) => {
            let down = u32::try_from(words(offset.checked_neg()?)?).ok()?;
            (down > 0 && down < RBP_AT_RBP).then_some(down)
        }
        Some(RegisterRule::Expression(place)) if kind == KIND_RBP_DEREF => {
            (bytes(section, place)? == [BREG_RBP, 0]).then_some(RBP_AT_RBP)
        }
        _ => None,
    }
}

/// The frame that a signal leaves: everything is where the ABI puts it, or it is not supported.
fn signal(section: &EhFrame<Slice<'_>>, row: &UnwindTableRow<usize>, pc: UnwindExpression<usize>) -> Option<Rule> {
    let place = |expression| match bytes(section, expression)?.split_first()? {
        (&BREG_RSP, rest) => signed(rest),
        _ => None,
    };
    let CfaRule::Expression(cfa) = *row.cfa() else { return None };
    let (rsp, rest) = place(cfa)?;
    let (pc, nothing) = place(pc)?;
    let Some(RegisterRule::Expression(rbp)) = row.register(X86_64::RBP) else { return None };
    let (rbp, nothing_either) = place(rbp)?;
    let fits = rest == [DEREF]
        && nothing.is_empty()
        && nothing_either.is_empty()
        && pc.checked_sub(rsp) == Some(SIGNAL_PC_BEHIND.cast_signed())
        && rsp.checked_sub(rbp) == Some(SIGNAL_RBP_BEFORE.cast_signed());
    fits.then_some(Rule::new(KIND_SIGNAL, 0, words(rsp)?))
}

fn bytes<'a>(section: &EhFrame<Slice<'a>>, expression: UnwindExpression<usize>) -> Option<&'a [u8]> {
    expression.get(section).ok().map(|expression| expression.0.slice())
}

/// As a number of 8-byte words that fits a row.
fn words(offset: i64) -> Option<i16> {
    (offset % 8 == 0).then(|| i16::try_from(offset / 8).ok()).flatten()
}

/// A signed LEB128 number of at most five bytes.
fn signed(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0_i64;
    for (place, &byte) in bytes.iter().enumerate().take(5) {
        value |= i64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let unused = 64 - 7 * (place as u32 + 1);
            return Some((value << unused >> unused, bytes.get(place + 1..)?));
        }
    }
    None
}

/// Used by the registers above: gimli's numbers are those of the System V ABI.
const _: () = assert!(X86_64::RBP.0 == 6 && X86_64::RSP.0 == 7 && X86_64::RA.0 == 16);
const _: Register = X86_64::RA;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb128() {
        assert_eq!(signed(&[8, 1]), Some((8, &[1][..])));
        assert_eq!(signed(&[0x78]), Some((-8, &[][..])));
        assert_eq!(signed(&[0xa0, 0x01, 6]), Some((160, &[6][..])));
        assert_eq!(signed(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
    }

    #[test]
    fn expressions_are_known_or_refused() {
        let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(of_expression(&plt), Some((KIND_PLT, 11)));
        assert_eq!(of_expression(&[0x76, 0x78, 6]), Some((KIND_RBP_DEREF, -1)));
        assert_eq!(of_expression(&[0x76, 0x78, 6, 6]), None);
        assert_eq!(of_expression(&[0x77, 0x80, 0x08, 6, 0x23, 8]), Some((KIND_RSP_DEREF, 128)));
        assert_eq!(of_expression(&[]), None);
    }

    #[test]
    fn words_are_whole_and_fit() {
        assert_eq!((words(16), words(-8), words(4)), (Some(2), Some(-1), None));
        assert_eq!((words(8 * 32767), words(8 * 32768)), (Some(i16::MAX), None));
    }
}
