//! Unwind tables: `.eh_frame` of one file as sorted rows of 8 bytes.
//!
//! The full table has a row wherever the rules change. Nearly all of these are prologues and epilogues, where no return
//! address can lie, and a stack that is taken at the entry of a function or in a system call asks for nothing but
//! return addresses: [`compact`] leaves such rows out. That they hold no call is proven from the code's bytes
//! ([`calls`]), when the table is made.

mod build;
pub mod cache;
mod calls;
mod compact;
mod entries;
pub mod index;
pub mod rules;

use tfmem_common::unwind::{Rule, row_address, row_rule};

pub use build::build;

/// Rows of one file, in order of address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// As in [`tfmem_common::unwind::row`].
    pub rows: Vec<u64>,
    pub found: Found,
}

/// What the call frame information held, and what of it could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub functions: u32,
    /// Entries that make no sense: their code has no rows, or not all.
    pub damaged: u32,
    /// Functions that begin inside another one: their rows begin where the other's end.
    pub overlapping: u32,
    /// Rows that say something that is not followed.
    pub unsupported: u32,
}

impl Table {
    /// The rule that holds at an address in the file's own address space.
    #[must_use]
    pub fn rule_at(&self, address: u64) -> Rule {
        let Ok(address) = u32::try_from(address) else { return Rule::NONE };
        let behind = self.rows.partition_point(|&row| row_address(row) <= address);
        behind.checked_sub(1).and_then(|place| self.rows.get(place)).map_or(Rule::NONE, |&row| row_rule(row))
    }
}
