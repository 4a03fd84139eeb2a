//! A boundary that the user named: one function of one file.

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use tfmem_common::cookie::{Cookie, Text};

use super::{LARGEST_FUNCTION, Point, place};
use crate::attach::elf::{Elf, Result, Symbol, Table};

/// Entry in plans and in messages.
const ENTRY: &str = "--boundary";

/// Where its probes go.
#[derive(Clone, Debug)]
pub struct UserPoints {
    pub points: Vec<Point>,
    /// It never returns: its entry is the boundary.
    pub entry_only: bool,
}

/// `None`: the file has no such function.
pub fn user_points(elf: &Elf, symbol: &str, number: u16) -> Result<Option<UserPoints>> {
    let Some(found) = find(elf, symbol)? else { return Ok(None) };
    let Some(place) = place(elf, &found, 0) else { return Ok(None) };
    let entry_only = !returns(elf, &found);
    let programs = [Some(("call_enter", false)), (!entry_only).then_some(("call_leave", true))];
    let points = programs
        .into_iter()
        .flatten()
        .map(|(program, ret)| Point {
            entry: ENTRY.to_owned(),
            symbol: symbol.to_owned(),
            table: found.table,
            symbol_index: found.index,
            address: found.value,
            delta: place.choice.delta,
            file_offset: place.file_offset,
            program: program.to_owned(),
            ret,
            cookie: Cookie { call: number, text: Text::None, wake: true }.pack(),
            instruction: place.choice.instruction.clone(),
            cheap: place.choice.cheap,
            why: place.choice.why.clone(),
        })
        .collect();
    Ok(Some(UserPoints { points, entry_only }))
}

fn find(elf: &Elf, symbol: &str) -> Result<Option<Symbol>> {
    if elf.has_hash()
        && let Some(found) = elf.lookup(symbol)?.filter(|s| s.function)
    {
        return Ok(Some(found));
    }
    let wanted = |name: &[u8]| name == symbol.as_bytes();
    for table in [Table::Dynamic, Table::Full] {
        if let Some(hit) = elf.scan(table, &wanted)?.into_iter().find(|hit| hit.symbol.function) {
            return Ok(Some(hit.symbol));
        }
    }
    Ok(None)
}

/// Whether the function has a return, or a jump to another one that may return for it. What cannot be told returns.
fn returns(elf: &Elf, symbol: &Symbol) -> bool {
    if symbol.size == 0 || symbol.size > LARGEST_FUNCTION {
        return true;
    }
    let Ok(body) = elf.at(symbol.value, symbol.size) else { return true };
    let inside = symbol.value..symbol.value.saturating_add(symbol.size);
    let mut decoder = Decoder::with_ip(64, &body, symbol.value, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::Return | FlowControl::IndirectBranch => return true,
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
                if !inside.contains(&instruction.near_branch_target()) =>
            {
                return true;
            }
            _ if instruction.is_invalid() => return true,
            _ => {}
        }
    }
    false
}
