//! shim
use std::path::Path;
use super::{elf, plan::{self, Plan}};
#[derive(Debug)]
pub struct Cache;
impl Cache { pub fn open() -> Self { Self } pub fn open_at(_: &Path) -> Self { Self } pub fn resolve(&self, p: &Path) -> elf::Result<Plan> { plan::resolve(p) } }
