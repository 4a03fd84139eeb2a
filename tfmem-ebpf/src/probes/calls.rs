//! Rare TensorFlow calls: one program for all entries, one for all returns. The attach cookie says which call it is.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_probe_read_user, bpf_probe_read_user_buf, generated::bpf_get_attach_cookie},
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use aya_log_ebpf::info;
use tfmem_common::{
    cookie::{Cookie, Text},
    counters,
    lost::what,
    wire::{Enter, EnterText, Leave, TEXT_BYTES, kind},
};

use crate::{
    emit::{Wake, count, flags, header, lost, send},
    gate::{Current, current, now},
    maps::{EVENTS, debug},
    unwind,
};

#[uprobe]
pub fn call_enter(ctx: ProbeContext) -> u32 {
    try_call_enter(&ctx);
    0
}

#[inline(always)]
fn try_call_enter(ctx: &ProbeContext) -> Option<()> {
    let current = current()?;
    // SAFETY: the context is the one the kernel passed.
    let cookie = Cookie::unpack(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    if debug() {
        info!(ctx, "enter call {} pid {}", cookie.call, current.pid());
    }
    let args = [ctx.arg(0)?, ctx.arg(1)?, ctx.arg(2)?, ctx.arg(3)?, ctx.arg(4)?, ctx.arg(5)?];
    let wake = if cookie.wake { Wake::Now } else { Wake::Later };
    // Before the time is taken: whoever reads the event knows its stack.
    unwind::entered(&current, ctx);
    let stack = unwind::at_entry(&current, ctx);
    let at = now();
    match cookie.text {
        Text::None => {
            let record =
                Enter { header: header(kind::ENTER, at, &current), call: u32::from(cookie.call), _pad: 0, args, stack };
            if !send(kind::ENTER, record, wake) {
                lost(&current, what::CALL, None);
            }
        }
        Text::CStr(n) => send_text(&current, at, cookie, (args, stack), pick(&args, n), TEXT_BYTES as u64),
        Text::StdString(n) => send_string(&current, at, cookie, (args, stack), pick(&args, n)),
        Text::StdStringAt(n, offset) => {
            send_string(&current, at, cookie, (args, stack), pick(&args, n).wrapping_add(u64::from(offset)));
        }
    }
    Some(())
}

/// The text is a `std::string` at this address.
#[inline(always)]
fn send_string(current: &Current, at: u64, cookie: Cookie, call: ([u64; 6], u64), address: u64) {
    // SAFETY: the helper checks the address. libstdc++'s std::string: pointer, length, …
    match unsafe { bpf_probe_read_user(address as *const [u64; 2]) } {
        Ok([text, len]) => send_text(current, at, cookie, call, text, len),
        Err(_) => {
            count(counters::TEXT_UNREADABLE);
            send_text(current, at, cookie, call, 0, 0);
        }
    }
}

/// `args[n]` without an index the verifier would have to bound.
#[inline(always)]
pub fn pick(args: &[u64; 6], n: u8) -> u64 {
    match n {
        0 => args[0],
        1 => args[1],
        2 => args[2],
        3 => args[3],
        4 => args[4],
        _ => args[5],
    }
}

#[inline(always)]
fn send_text(current: &Current, at: u64, cookie: Cookie, (args, stack): ([u64; 6], u64), text: u64, len: u64) {
    let Some(mut entry) = EVENTS.reserve::<EnterText>(0) else {
        count(counters::DROPPED_BASE + u32::from(kind::ENTER_TEXT));
        lost(current, what::CALL, None);
        return;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the reservation is ours and as large as the record; every field is written.
    unsafe {
        (*record).enter =
            Enter { header: header(kind::ENTER_TEXT, at, current), call: u32::from(cookie.call), _pad: 0, args, stack };
        (*record)._pad = 0;
        (*record).text = [0; TEXT_BYTES];
        let read = read_text(&mut (*record).text, cookie.text, text, len);
        (*record).text_len = read;
    }
    entry.submit(flags(if cookie.wake { Wake::Now } else { Wake::Later }));
}

#[inline(always)]
fn read_text(buffer: &mut [u8; TEXT_BYTES], mode: Text, address: u64, len: u64) -> u32 {
    if address == 0 || len == 0 {
        return 0;
    }
    if matches!(mode, Text::CStr(_)) {
        // SAFETY: checked by the helper, bounded by the buffer; returns the length with the zero byte.
        let read = unsafe {
            aya_ebpf::helpers::generated::bpf_probe_read_user_str(
                buffer.as_mut_ptr().cast(),
                TEXT_BYTES as u32,
                address as *const _,
            )
        };
        if read < 0 {
            count(counters::TEXT_UNREADABLE);
        }
        return if read > 1 { (read - 1) as u32 } else { 0 };
    }
    let wanted = if len as usize > TEXT_BYTES { TEXT_BYTES } else { len as usize };
    // SAFETY: checked by the helper, bounded by the slice.
    match unsafe { bpf_probe_read_user_buf(address as *const u8, &mut buffer[..wanted]) } {
        Ok(()) => wanted as u32,
        Err(_) => {
            count(counters::TEXT_UNREADABLE);
            0
        }
    }
}

#[uretprobe]
pub fn call_leave(ctx: RetProbeContext) -> u32 {
    try_call_leave(&ctx);
    0
}

#[inline(always)]
fn try_call_leave(ctx: &RetProbeContext) -> Option<()> {
    let current = current()?;
    unwind::returned(&current, ctx);
    // SAFETY: the context is the one the kernel passed.
    let cookie = Cookie::unpack(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let record =
        Leave { header: header(kind::LEAVE, now(), &current), call: u32::from(cookie.call), _pad: 0, ret: ctx.ret() };
    if !send(kind::LEAVE, record, if cookie.wake { Wake::Now } else { Wake::Later }) {
        lost(&current, what::CALL, None);
    }
    Some(())
}
