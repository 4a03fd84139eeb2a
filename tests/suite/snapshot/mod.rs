//! `tfmem snapshot`: what a process holds, against what it says of itself at the same instant.

mod allocators;
mod cases;
mod errors;
mod heap;
mod images;
mod live;
mod oracles;
mod traced;
