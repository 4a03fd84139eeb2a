//! `tfmem snapshot`: what a process holds, against what it says of itself at the same instant.

mod cases;
mod errors;
mod heap;
mod oracles;
