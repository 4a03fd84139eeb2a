//! Native stacks without frame pointers: what the kernel needs to walk them, made from the files' own call frame
//! information.

pub mod table;
