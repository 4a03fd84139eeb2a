//! Who allocates: TensorFlow's own thread-local annotation, read in place.
//!
//! thread pointer → DTV → TLS block of the framework library → annotation. Layouts: glibc's `tcbhead_t` (the DTV's
//! address at +8) and `dtv_t` (16 bytes a module), unchanged since TLS came to x86-64; the annotation's own layout is
//! named by the loader (`ANNOTATION_*`).

use core::hint::black_box;

use aya_ebpf::helpers::{
    bpf_probe_read_kernel, bpf_probe_read_user, bpf_probe_read_user_buf, generated::bpf_get_current_task,
};
use tfmem_common::{
    config::{ANNOTATION_CSTR, ANNOTATION_VIEW, Annotation},
    counters,
    wire::{self, NAME_BYTES, Name, Origin},
};

use crate::{
    emit::{Wake, count, flags, header, zero},
    gate::Current,
    maps::{EVENTS, NAMES_SENT, kernel},
    thread::Thread,
};

/// `TLS_DTV_UNALLOCATED`: this thread never touched the library's thread-local data.
const DTV_UNALLOCATED: u64 = u64::MAX;
/// More modules than any process has: a larger number means that the slot is not what we think it is.
const MAX_MODULE: u64 = 1 << 16;

struct Note {
    op: u64,
    /// Length of the name, or 0 when it ends with a zero byte.
    op_len: u64,
    step: i64,
    region: u64,
    region_len: u64,
    dtype: i32,
}

/// The annotation of the current thread; all zero when there is none.
#[inline(always)]
pub fn read(current: &Current, mut thread: Option<&mut Thread>, at: u64) -> Origin {
    // The dynamic linker lets all code use one of two places: the one that told something last comes first.
    let second_first = thread.as_ref().is_some_and(|thread| thread.told == 1);
    let told = note(current, thread.as_deref_mut(), second_first)
        .or_else(|| note(current, thread.as_deref_mut(), !second_first));
    let Some(note) = told else { return none() };
    Origin {
        op: name(current, thread, at, note.op, note.op_len),
        step: note.step,
        region: region(note.region, note.region_len),
        dtype: note.dtype,
        _pad: 0,
    }
}

/// Nobody.
#[inline(always)]
pub fn none() -> Origin {
    let zero = zero();
    Origin { op: zero, step: zero as i64, region: zero.to_ne_bytes(), dtype: zero as i32, _pad: zero as u32 }
}

/// What the thread has noted in one of the two places; `None` when nothing is there.
#[inline(always)]
fn note(current: &Current, thread: Option<&mut Thread>, second: bool) -> Option<Note> {
    let [first_place, second_place] = current.process.annotations;
    let place = if second { second_place } else { first_place };
    if place.module_slot == 0 {
        return None;
    }
    let Some(thread) = thread else { return told_at(&place, address(&place)?) };
    let known = if second { thread.notes[1] } else { thread.notes[0] };
    let address = if known == 0 { address(&place)? } else { known };
    if known == 0 && thread.may_remember() {
        if second {
            thread.notes[1] = address;
        } else {
            thread.notes[0] = address;
        }
    }
    let note = told_at(&place, address)?;
    thread.told = u32::from(second);
    Some(note)
}

#[inline(always)]
fn told_at(place: &Annotation, address: u64) -> Option<Note> {
    match read_note(place.layout, address) {
        Ok(note) => (note.op != 0).then_some(note),
        Err(_) => {
            count(counters::ANNOTATION_UNREADABLE);
            None
        }
    }
}

#[inline(always)]
fn address(place: &Annotation) -> Option<u64> {
    let thread = thread_pointer()?;
    // SAFETY: the helpers check every address; a bad one is an error, not a fault.
    unsafe {
        let module: u64 = bpf_probe_read_user(place.module_slot as *const u64).ok()?;
        if module == 0 || module > MAX_MODULE {
            return None;
        }
        let dtv: u64 = bpf_probe_read_user((thread + 8) as *const u64).ok()?;
        let block: u64 = bpf_probe_read_user((dtv + module * 16) as *const u64).ok()?;
        if block == 0 || block == DTV_UNALLOCATED {
            return None;
        }
        Some(block + u64::from(place.offset))
    }
}

/// The current thread's pointer to its own data, which is also its number for Python.
#[inline(always)]
pub fn thread_pointer() -> Option<u64> {
    let fsbase = kernel().fsbase;
    if fsbase == 0 {
        return None;
    }
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((bpf_get_current_task() + u64::from(fsbase)) as *const u64) }.ok()
}

#[inline(always)]
fn read_note(layout: u32, address: u64) -> Result<Note, i32> {
    // SAFETY: as above.
    unsafe {
        match layout {
            ANNOTATION_CSTR => {
                let raw: [u64; 4] = bpf_probe_read_user(address as *const [u64; 4])?;
                Ok(Note {
                    op: raw[0],
                    op_len: 0,
                    step: raw[1] as i64,
                    region: raw[2],
                    region_len: 8,
                    dtype: raw[3] as i32,
                })
            }
            ANNOTATION_VIEW => {
                let raw: [u64; 6] = bpf_probe_read_user(address as *const [u64; 6])?;
                let op = if raw[0] == 0 { 0 } else { raw[1] };
                Ok(Note {
                    op,
                    op_len: raw[0],
                    step: raw[2] as i64,
                    region: raw[4],
                    region_len: raw[3],
                    dtype: raw[5] as i32,
                })
            }
            _ => Err(0),
        }
    }
}

/// First bytes of the region's name, cut at its end.
#[inline(always)]
fn region(address: u64, len: u64) -> [u8; 8] {
    if address == 0 || len == 0 {
        return [0; 8];
    }
    // SAFETY: as above. The names are string literals in the library; reading 8 bytes of one can at worst run into
    // its neighbour, which is cut off below.
    let Ok(raw) = (unsafe { bpf_probe_read_user(address as *const u64) }) else {
        return [0; 8];
    };
    let mut kept = if len < 8 { raw & ((1u64 << (len * 8)) - 1) } else { raw };
    // Cut behind the first zero byte: the lowest set bit of `zero` marks it.
    let zero = kept.wrapping_sub(0x0101_0101_0101_0101) & !kept & 0x8080_8080_8080_8080;
    if zero != 0 {
        let first = zero & zero.wrapping_neg();
        kept &= first.wrapping_sub(1) >> 7;
    }
    kept.to_le_bytes()
}

/// Reads the op's name, sends it when this hash was not sent before, and returns the hash (0: not readable).
#[inline(always)]
fn name(current: &Current, thread: Option<&mut Thread>, at: u64, address: u64, len: u64) -> u64 {
    let mut words = [zero(); NAME_BYTES / 8];
    let read = read_name(&mut words, address, len);
    if read == 0 {
        count(counters::ANNOTATION_UNREADABLE);
        return 0;
    }
    let hash = hash(&words, read);
    match thread {
        // As the last time: it was sent.
        Some(thread) if thread.op == hash => {}
        Some(thread) => {
            if send_name(current, at, &words, read, hash) {
                thread.op = hash;
            }
        }
        None => {
            send_name(current, at, &words, read, hash);
        }
    }
    hash
}

/// Sends a name, unless it was sent before. `false`: the buffer was full, which is counted.
#[inline(always)]
fn send_name(current: &Current, at: u64, words: &[u64; NAME_BYTES / 8], len: u32, hash: u64) -> bool {
    // SAFETY: only presence is asked for.
    if unsafe { NAMES_SENT.get(hash) }.is_some() {
        return true;
    }
    let Some(mut entry) = EVENTS.reserve::<Name>(0) else {
        count(counters::DROPPED_BASE + u32::from(wire::kind::NAME));
        return false;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the reservation is ours and as large as the record; every field is written.
    unsafe {
        (*record).header = header(wire::kind::NAME, at, current);
        (*record).hash = hash;
        (*record).len = len;
        (*record)._pad = 0;
        (*record).text.as_mut_ptr().cast::<[u64; NAME_BYTES / 8]>().write_unaligned(*words);
    }
    entry.submit(flags(Wake::Later));
    let _ = NAMES_SENT.insert(hash, 1, 0);
    true
}

/// Fills `words` (zeroed) with the name; returns its length, at most `NAME_BYTES`, 0 when unreadable.
#[inline(always)]
fn read_name(words: &mut [u64; NAME_BYTES / 8], address: u64, len: u64) -> u32 {
    // SAFETY: the words are plain bytes; the slice covers exactly them.
    let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), NAME_BYTES) };
    if len == 0 {
        // SAFETY: checked by the helper, bounded by the slice; returns the length with the zero byte.
        let read = unsafe {
            aya_ebpf::helpers::generated::bpf_probe_read_user_str(
                bytes.as_mut_ptr().cast(),
                NAME_BYTES as u32,
                address as *const _,
            )
        };
        if read == NAME_BYTES as i64 {
            count(counters::NAME_TRUNCATED);
        }
        return if read > 1 { (read - 1) as u32 } else { 0 };
    }
    if len > NAME_BYTES as u64 {
        count(counters::NAME_TRUNCATED);
    }
    let wanted = within_name(len);
    // SAFETY: checked by the helper, bounded by the slice.
    match unsafe { bpf_probe_read_user_buf(address as *const u8, &mut bytes[..wanted]) } {
        Ok(()) => wanted as u32,
        Err(_) => 0,
    }
}

/// At most `NAME_BYTES`, and at least 1: in a form that every verifier follows. Up to 6.1 it forgets what a comparison
/// said of a copy of the value, and the compiler is free to compare one copy and to use another.
#[inline(always)]
fn within_name(len: u64) -> usize {
    // Hidden from the compiler, which would leave out a mask that it knows to change nothing.
    let last = black_box(len.clamp(1, NAME_BYTES as u64) - 1);
    (last & (NAME_BYTES as u64 - 1)) as usize + 1
}

const _: () = assert!(NAME_BYTES.is_power_of_two());

/// A multiply-and-rotate hash of the name, padded with zeroes to whole words (FxHash's step); never 0.
#[inline(always)]
fn hash(words: &[u64; NAME_BYTES / 8], len: u32) -> u64 {
    let mut hash = 0u64;
    for (number, &word) in words.iter().enumerate() {
        if number as u32 * 8 >= len {
            break;
        }
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    // The multiplication leaves the low bits weak: fold the high ones in.
    (hash ^ (hash >> 29)) | 1
}
