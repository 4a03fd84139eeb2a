//! Python's frames of the current thread, and their places among the native ones.
//!
//! Python's own list of frames is read first. One run of the interpreter's loop (one native frame) may run many of them;
//! from 3.10 on something of each run lies on the C stack in the loop's own frame, and so says which frame that is: no
//! symbol is needed for it. The loop's code is known all the same, to notice a thread whose list was not found.

use aya_ebpf::helpers::{bpf_probe_read_user, generated::bpf_probe_read_user as bpf_probe_read_user_raw};
use tfmem_common::{
    counters,
    python::{
        ABSENT, MOST, OWNER_NO_CODE, Python, RUN_EACH, RUN_ENTRY, RUN_FLAG, RUN_UNTOLD, WORDS, at, code, identity,
    },
    unwind::{MOST_WORDS, end, mix},
};

use super::{
    in_stack,
    maps::{Scratch, UNWIND_RANGES, UNWIND_SCRATCH},
};
use crate::{emit::count, origin::thread_pointer};

/// Threads and interpreters that are asked whether they are the current one.
const MOST_LISTED: u32 = 128;
/// Each frame of code may come with one that is none.
const MOST_STEPS: u32 = 2 * MOST as u32;

/// Where a run of the loop is that nothing has told of: above every stack.
const NOWHERE: u64 = u64::MAX;

/// Reads the frames of the current thread into the scratch; returns their hash, 0: there are none.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn python_walk(number: u32) -> u64 {
    if python_begin(number) == 0 {
        return 0;
    }
    for _ in 0..MOST_STEPS {
        if python_frame(number) == 0 {
            break;
        }
    }
    let Some(scratch) = UNWIND_SCRATCH.get_ptr(number) else { return 0 };
    // SAFETY: a valid map value, claimed by this program.
    let frames = unsafe { &(*scratch).python };
    if frames.count == 0 { 0 } else { frames.hash | 1 }
}

/// Finds the current thread among Python's. 0: it is none of them.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn python_begin(number: u32) -> u32 {
    let Some(scratch) = UNWIND_SCRATCH.get_ptr_mut(number) else { return 0 };
    // SAFETY: a valid map value, claimed by this program.
    let scratch = unsafe { &mut *scratch };
    begin(scratch).map_or(0, |()| 1)
}

#[inline(always)]
fn begin(scratch: &mut Scratch) -> Option<()> {
    let frames = &mut scratch.python;
    (frames.count, frames.placed, frames.run, frames.owed, frames.loops) = (0, 0, 0, 0, 0);
    (frames.eval_file, frames.eval) = (0, [[0; 2]; 2]);
    let python = known(scratch.ranges)?;
    if python.interpreters == 0 {
        return None;
    }
    (frames.eval_file, frames.eval) = (python.eval_file, python.eval);
    frames.untold = u32::from(python.runs == RUN_UNTOLD);
    let (state, top) = thread(python, thread_pointer()?)?;
    frames.frame = top;
    frames.c_frame = if python.c_frame == ABSENT { NOWHERE } else { field(state, python.c_frame).unwrap_or(NOWHERE) };
    // The same addresses are others' in another process, and in another program of this one.
    frames.hash = mix(mix(0, u64::from(scratch.pid)), u64::from(python.generation));
    frames.places[0] = frames.c_frame;
    Some(())
}

#[inline(always)]
fn known(ranges: u32) -> Option<&'static Python> {
    let ranges = UNWIND_RANGES.get_ptr(ranges)?;
    // SAFETY: a valid map value; the loader never writes one that is in use.
    Some(unsafe { &(*ranges).python })
}

/// The current thread's state and its innermost frame. One that has no frame is not meant: while a thread is being made,
/// its state carries the number of the thread that makes it.
#[inline(always)]
fn thread(python: &Python, pointer: u64) -> Option<(u64, u64)> {
    let mut interpreter = word(python.interpreters)?;
    let mut state = field(interpreter, python.threads)?;
    for _ in 0..MOST_LISTED {
        if state == 0 {
            interpreter = field(interpreter, python.next_interpreter)?;
            if interpreter == 0 {
                return None;
            }
            state = field(interpreter, python.threads)?;
            continue;
        }
        if field(state, python.thread_id)? == pointer {
            let top = top(python, state)?;
            if top != 0 {
                return Some((state, top));
            }
        }
        state = field(state, python.next_thread)?;
    }
    None
}

#[inline(always)]
fn top(python: &Python, state: u64) -> Option<u64> {
    let top = field(state, python.top)?;
    if python.top_through == ABSENT { Some(top) } else { field(top, python.top_through) }
}

/// Reads one frame. 0: there is none.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn python_frame(number: u32) -> u32 {
    let Some(scratch) = UNWIND_SCRATCH.get_ptr_mut(number) else { return 0 };
    // SAFETY: a valid map value, claimed by this program.
    let scratch = unsafe { &mut *scratch };
    if scratch.python.frame == 0 {
        return 0;
    }
    let Some(python) = known(scratch.ranges) else { return 0 };
    match read_frame(scratch, python) {
        Ok(()) => 1,
        Err(why) => {
            count(why);
            // It may be there again the next time.
            scratch.walk.unsure = 1;
            0
        }
    }
}

#[inline(always)]
fn read_frame(scratch: &mut Scratch, python: &Python) -> Result<(), u32> {
    const UNREADABLE: u32 = counters::PYTHON_UNREADABLE;
    let frames = &mut scratch.python;
    // SAFETY: the helper checks the address; the buffer is larger than any size.
    let read = unsafe {
        bpf_probe_read_user_raw(frames.read.as_mut_ptr().cast(), python.size & 127, frames.frame as *const _)
    };
    if read != 0 {
        return Err(UNREADABLE);
    }
    let run = slot(frames.run as usize);
    let next = part(&frames.read, python.back);
    if python.owner != ABSENT && part(&frames.read, python.owner) & 0xff >= OWNER_NO_CODE {
        if python.runs == RUN_ENTRY {
            frames.places[run] = frames.frame;
            next_run(scratch);
        }
        scratch.python.frame = next;
        return Ok(());
    }
    let number = frames.count as usize;
    if number >= MOST {
        return Err(counters::PYTHON_TRUNCATED);
    }
    let object = part(&frames.read, python.code) & !python.tag;
    let instruction = part(&frames.read, python.instruction);
    let offset = if python.unit == 0 {
        instruction.wrapping_sub(object.wrapping_add(u64::from(python.instructions))) as i32
    } else {
        (instruction as i32).wrapping_mul(python.unit as i32)
    };
    // SAFETY: the helpers check the addresses; the buffer has so many words.
    let (read, line) = unsafe {
        let words = object.wrapping_add(u64::from(python.identity));
        let read = bpf_probe_read_user_raw(frames.object.as_mut_ptr().cast(), WORDS as u32 * 8, words as *const _);
        (read, bpf_probe_read_user(object.wrapping_add(u64::from(python.first_line)) as *const u32))
    };
    if read != 0 {
        return Err(UNREADABLE);
    }
    let mut text = [0; 2];
    if python.text != ABSENT {
        let name = frames.object[python.file_word as usize & 7].wrapping_add(u64::from(python.text));
        // SAFETY: the helper checks the address.
        text = unsafe { bpf_probe_read_user(name as *const [u64; 2]) }.map_err(|_| UNREADABLE)?;
    }
    let words = [
        frames.object[0],
        frames.object[1],
        frames.object[2],
        frames.object[3],
        frames.object[4],
        frames.object[5],
        frames.object[6],
    ];
    let (first, second) = (code(object), at(offset, identity(&words, line.map_err(|_| UNREADABLE)?, text)));
    frames.words[slot(number) * 2] = first;
    frames.words[slot(number) * 2 + 1] = second;
    frames.runs[slot(number)] = run as u8;
    frames.hash = mix(mix(frames.hash, first), second);
    frames.count = number as u32 + 1;
    frames.frame = next;
    let flagged = python.runs == RUN_FLAG && part(&frames.read, python.entry) & 0xff != 0;
    if flagged || python.runs == RUN_EACH {
        frames.c_frame = field(frames.c_frame, python.c_previous).unwrap_or(NOWHERE);
        next_run(scratch);
    } else if python.runs == RUN_UNTOLD {
        next_run(scratch);
    }
    Ok(())
}

#[inline(always)]
fn next_run(scratch: &mut Scratch) {
    let frames = &mut scratch.python;
    // There is at least one frame to each: more runs than fit have no frames that are kept.
    if (frames.run as usize) < MOST - 1 {
        frames.run += 1;
        frames.places[slot(frames.run as usize)] = frames.c_frame;
    }
}

/// A native frame is part of the stack now: does the loop run in it?
#[inline(always)]
pub fn passed(scratch: &mut Scratch, file: u32, address: u64) {
    let frames = &mut scratch.python;
    let within = |part: [u32; 2]| address >= u64::from(part[0]) && address < u64::from(part[1]);
    if file == frames.eval_file && (within(frames.eval[0]) || within(frames.eval[1])) {
        frames.loops = 1;
        frames.owed = frames.untold;
    }
}

/// Adds the next Python frame to the stack, if its run is in the native frame that was left last. `None`: it is not.
#[inline(always)]
pub fn place(scratch: &mut Scratch) -> Option<Result<(), u32>> {
    let frames = &mut scratch.python;
    if frames.placed >= frames.count {
        return None;
    }
    let run = frames.runs[slot(frames.placed as usize)];
    let place = frames.places[slot(run as usize)];
    if frames.owed == 0 && place >= scratch.registers.sp {
        return None;
    }
    frames.owed = 0;
    Some(add(scratch))
}

#[inline(always)]
fn add(scratch: &mut Scratch) -> Result<(), u32> {
    let frames = &mut scratch.python;
    let placed = frames.placed as usize;
    let (first, second) = (frames.words[slot(placed) * 2], frames.words[slot(placed) * 2 + 1]);
    let number = scratch.stack.count as usize;
    if number >= MOST_WORDS - 1 {
        return Err(end::TRUNCATED);
    }
    scratch.stack.frames[in_stack(number)] = first;
    scratch.stack.frames[in_stack(number + 1)] = second;
    scratch.stack.count = number as u32 + 2;
    scratch.hash = mix(mix(scratch.hash, first), second);
    frames.placed = placed as u32 + 1;
    Ok(())
}

/// Adds one Python frame that has no place, outside of all others. 0: there is none, or no room.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn python_rest(number: u32) -> u32 {
    let Some(scratch) = UNWIND_SCRATCH.get_ptr_mut(number) else { return 0 };
    // SAFETY: a valid map value, claimed by this program.
    let scratch = unsafe { &mut *scratch };
    if scratch.python.placed >= scratch.python.count {
        return 0;
    }
    if add(scratch).is_err() {
        return 0;
    }
    count(counters::PYTHON_UNPLACED);
    1
}

/// `MOST - 1`, where the compiler cannot see it, see `super::PAGE_MASK`.
#[unsafe(no_mangle)]
static PYTHON_MASK: u64 = MOST as u64 - 1;

#[inline(always)]
fn slot(number: usize) -> usize {
    // SAFETY: reads a static.
    number & unsafe { core::ptr::read_volatile(&raw const PYTHON_MASK) } as usize & (MOST - 1)
}

/// A field of what was read, shifted down; its upper bits are those of the next one.
#[inline(always)]
fn part(read: &[u64; 16], offset: u32) -> u64 {
    read[(offset >> 3) as usize & 15] >> ((offset & 7) * 8)
}

#[inline(always)]
fn field(base: u64, offset: u32) -> Option<u64> {
    word(base.wrapping_add(u64::from(offset)))
}

#[inline(always)]
fn word(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}
