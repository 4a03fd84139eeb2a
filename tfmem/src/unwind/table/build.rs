//! Makes a file's table.

use gimli::{BaseAddresses, EhFrame, FrameDescriptionEntry, UnwindContext, X86_64};
use tfmem_common::unwind::{KIND_UNSUPPORTED, Rule, row};

use super::{
    Found, Table,
    calls::Code,
    entries::{Entries, Slice},
    rules,
};
use crate::attach::elf::{Elf, ElfError, Result};

/// Rows of one file that are kept; libtensorflow_cc has 3 to 4 million.
const MOST_ROWS: usize = 24 << 20;
/// Code is not longer than this before the next function: what lies between is padding.
const PADDING: u64 = 32;

/// A function and which of the collected rows are its own.
struct Function {
    start: u32,
    end: u32,
    first: u32,
    count: u32,
}

/// The table of a file; `None`: it has no call frame information.
///
/// # Errors
/// When the file cannot be read, is damaged as a whole, or is larger than any table holds.
pub fn build(elf: &Elf) -> Result<Option<Table>> {
    let (Some(frames), Some(extent)) = (elf.frames()?, elf.code_extent()) else { return Ok(None) };
    if u32::try_from(extent.1).is_err() {
        return Err(ElfError::Damaged("code beyond 4 GiB"));
    }
    let mut collected = Collected::new(elf, extent);
    let mut entries = Entries::new(elf, frames);
    while entries.next(&mut |section, bases, function| collected.take(section, bases, function))? {
        if collected.rows.len() > MOST_ROWS {
            return Err(ElfError::Damaged("too many rows of unwind information"));
        }
    }
    collected.found.damaged = entries.damaged();
    Ok(Some(collected.finish()))
}

struct Collected<'a> {
    code: Code<'a>,
    extent: (u64, u64),
    context: UnwindContext<usize>,
    functions: Vec<Function>,
    /// Address, rule; each function's own are in order.
    rows: Vec<(u32, Rule)>,
    found: Found,
}

impl<'a> Collected<'a> {
    fn new(elf: &'a Elf, extent: (u64, u64)) -> Self {
        Self {
            code: Code::new(elf),
            extent,
            context: UnwindContext::new(),
            functions: Vec::new(),
            rows: Vec::new(),
            found: Found::default(),
        }
    }

    /// Collects a function's rows; `false`: it makes no sense.
    fn take(
        &mut self,
        section: &EhFrame<Slice<'_>>,
        bases: &BaseAddresses,
        function: &FrameDescriptionEntry<Slice<'_>>,
    ) -> bool {
        let (start, end) = (function.initial_address(), function.end_address());
        // A function that the linker dropped leaves an empty entry, or one at no address.
        if start == end || start == 0 {
            return true;
        }
        if start > end || start < self.extent.0 || end > self.extent.1 {
            return false;
        }
        if function.cie().return_address_register() != X86_64::RA {
            return false;
        }
        let first = self.rows.len();
        let whole = self.rows_of(section, bases, function, (start, end));
        let (Ok(start), Ok(end), Ok(first), Ok(count)) =
            (u32::try_from(start), u32::try_from(end), u32::try_from(first), u32::try_from(self.rows.len() - first))
        else {
            return false;
        };
        self.functions.push(Function { start, end, first, count });
        self.found.functions += 1;
        whole
    }

    /// `false`: not all of the function's rows could be read. What is missing is [`Rule::NONE`].
    fn rows_of(
        &mut self,
        section: &EhFrame<Slice<'_>>,
        bases: &BaseAddresses,
        function: &FrameDescriptionEntry<Slice<'_>>,
        (start, end): (u64, u64),
    ) -> bool {
        let mut at = start;
        {
            let Ok(mut table) = function.rows(section, bases, &mut self.context) else { return false };
            loop {
                match table.next_row() {
                    Ok(Some(row)) => {
                        let until = row.end_address().min(end);
                        if row.start_address() < at || until <= row.start_address() {
                            // Several rules for one place: the last one holds, and only it has a length.
                            continue;
                        }
                        let rule = rules::rule(section, row);
                        self.found.unsupported += u32::from(rule.kind() == KIND_UNSUPPORTED);
                        let free = self.code.is_call_free(row.start_address(), until);
                        self.rows.push((row.start_address() as u32, rule.with_call_free(free)));
                        at = until;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        at = at.min(end);
                        break;
                    }
                }
            }
        }
        if at < end {
            self.rows.push((at as u32, Rule::NONE));
        }
        at >= end
    }

    fn finish(mut self) -> Table {
        self.functions.sort_by_key(|function| (function.start, function.end));
        let mut rows = Vec::with_capacity(self.rows.len() + self.functions.len());
        let mut reached = None;
        for function in &std::mem::take(&mut self.functions) {
            if let Some(reached) = reached.filter(|&reached| reached < function.start) {
                self.gap(&mut rows, reached, function.start);
            }
            self.found.overlapping += u32::from(reached.is_some_and(|reached| reached > function.start));
            let from = reached.unwrap_or(0).max(function.start);
            if from < function.end {
                self.append(&mut rows, function, from);
                reached = Some(function.end);
            }
        }
        if let Some(reached) = reached {
            rows.push(row(reached, Rule::NONE));
        }
        rows.shrink_to_fit();
        Table { rows, found: self.found }
    }

    /// Code between functions of which nothing is known; mostly padding.
    fn gap(&mut self, rows: &mut Vec<u64>, start: u32, end: u32) {
        let (from, to) = (u64::from(start), u64::from(end));
        let padding = to - from <= PADDING && self.code.is_call_free(from, to);
        rows.push(row(start, Rule::NONE.with_call_free(padding)));
    }

    /// A function's rows from an address on.
    fn append(&self, rows: &mut Vec<u64>, function: &Function, from: u32) {
        let own = self.rows.iter().skip(function.first as usize).take(function.count as usize);
        let own: Vec<&(u32, Rule)> = own.collect();
        let begin = own.partition_point(|(address, _)| *address <= from).saturating_sub(1);
        for (address, rule) in own.into_iter().skip(begin) {
            rows.push(row((*address).max(from), *rule));
        }
    }
}
