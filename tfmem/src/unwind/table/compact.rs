//! Leaves out the rows that no return address asks for.

use tfmem_common::unwind::{row, row_address, row_rule};

use super::Table;

impl Table {
    /// The table for return addresses alone. Where none can lie, the rule before goes on: equal neighbours, such as all
    /// functions that keep a frame pointer, become one row.
    #[must_use]
    pub fn compact(&self) -> Self {
        let mut rows = Vec::new();
        let mut last = None;
        for &full in &self.rows {
            let rule = row_rule(full);
            if rule.call_free() || last == Some(rule) {
                continue;
            }
            last = Some(rule);
            rows.push(row(row_address(full), rule));
        }
        Self { rows, found: self.found }
    }
}
