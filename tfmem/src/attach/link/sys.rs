//! The few calls of `bpf(2)` that aya does not make: programs that expect uprobe-multi links, and these links.
//! Source of the layouts: `union bpf_attr` in include/uapi/linux/bpf.h, as aya-obj has it.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use aya_obj::generated::{
    BPF_F_UPROBE_MULTI_RETURN, bpf_attach_type::BPF_TRACE_UPROBE_MULTI, bpf_attr, bpf_cmd, bpf_insn,
    bpf_prog_type::BPF_PROG_TYPE_KPROBE,
};

/// The verifier stops when a signal comes, and is asked again so often.
const ATTEMPTS: usize = 10;

/// Type information that says what a program's functions take and give.
#[derive(Debug)]
pub struct Btf<'a> {
    pub fd: BorrowedFd<'a>,
    /// Records, and the size of one.
    pub functions: (Vec<u8>, usize),
    pub lines: (Vec<u8>, usize),
}

#[derive(Debug)]
pub struct ProgramCode<'a> {
    pub name: &'a str,
    pub license: &'a CStr,
    pub instructions: &'a [bpf_insn],
    pub btf: Option<Btf<'a>>,
}

/// # Errors
/// What the kernel said.
pub fn load_btf(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = zeroed();
    attr.__bindgen_anon_7.btf = address(bytes);
    attr.__bindgen_anon_7.btf_size = bytes.len() as u32;
    bpf(bpf_cmd::BPF_BTF_LOAD, &mut attr)
}

/// Loads a program for uprobe-multi links. `log` takes what the verifier says, as text that ends with a zero; none is
/// wanted where it is empty.
///
/// # Errors
/// What the kernel said.
pub fn load_program(code: &ProgramCode<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    // `BPF_LOG_LEVEL1 | BPF_LOG_STATS`
    const LEVEL: u32 = 1 | 4;
    let mut attr = zeroed();
    attr.__bindgen_anon_3.prog_type = BPF_PROG_TYPE_KPROBE as u32;
    attr.__bindgen_anon_3.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    attr.__bindgen_anon_3.prog_name = short_name(code.name);
    attr.__bindgen_anon_3.license = code.license.as_ptr() as u64;
    attr.__bindgen_anon_3.insns = address(code.instructions);
    attr.__bindgen_anon_3.insn_cnt = code.instructions.len() as u32;
    if let Some(btf) = &code.btf {
        attr.__bindgen_anon_3.prog_btf_fd = btf.fd.as_raw_fd() as u32;
        let (records, size) = &btf.functions;
        attr.__bindgen_anon_3.func_info = address(records);
        attr.__bindgen_anon_3.func_info_cnt = count(records, *size);
        attr.__bindgen_anon_3.func_info_rec_size = *size as u32;
        let (records, size) = &btf.lines;
        attr.__bindgen_anon_3.line_info = address(records);
        attr.__bindgen_anon_3.line_info_cnt = count(records, *size);
        attr.__bindgen_anon_3.line_info_rec_size = *size as u32;
    }
    if !log.is_empty() {
        attr.__bindgen_anon_3.log_level = LEVEL;
        attr.__bindgen_anon_3.log_buf = log.as_mut_ptr() as u64;
        attr.__bindgen_anon_3.log_size = log.len() as u32;
    }
    let mut loaded = bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr);
    for _ in 1..ATTEMPTS {
        match loaded {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            other => return other,
        }
        loaded = bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr);
    }
    loaded
}

/// Puts a program at places of a file, each with its cookie, in all processes that map it. It stays while the
/// descriptor is open.
///
/// # Errors
/// What the kernel said: of one of the places, or of the file.
pub fn link(
    program: BorrowedFd<'_>,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
    at_return: bool,
) -> io::Result<OwnedFd> {
    if offsets.len() != cookies.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut attr = zeroed();
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    attr.link_create.attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    attr.link_create.__bindgen_anon_3.uprobe_multi.path = path.as_ptr() as u64;
    attr.link_create.__bindgen_anon_3.uprobe_multi.offsets = address(offsets);
    attr.link_create.__bindgen_anon_3.uprobe_multi.cookies = address(cookies);
    attr.link_create.__bindgen_anon_3.uprobe_multi.cnt = offsets.len() as u32;
    attr.link_create.__bindgen_anon_3.uprobe_multi.flags = if at_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 };
    bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// As the kernel keeps it: cut, with a zero at its end.
fn short_name(name: &str) -> [libc::c_char; 16] {
    let mut short = [0; 16];
    for (place, byte) in short.iter_mut().take(15).zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    short
}

fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr() as u64
}

fn count(records: &[u8], size: usize) -> u32 {
    records.len().checked_div(size).unwrap_or(0) as u32
}

/// Older kernels want zeroes in all that they do not know.
fn zeroed() -> bpf_attr {
    // SAFETY: plain numbers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// The commands used here give a new descriptor.
fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the callers above put in lengths and addresses of slices and strings that live until they return, and the
    // kernel writes to none but the log.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, &raw mut *attr, size_of::<bpf_attr>()) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut() {
        let text = |name: &str| -> Vec<u8> { short_name(name).iter().map(|&c| c as u8).collect() };
        assert_eq!(text("chunk"), *b"chunk\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(text("chunk_given_back_and_more"), *b"chunk_given_bac\0");
    }

    #[test]
    fn each_place_has_a_cookie() {
        use std::os::fd::AsFd as _;
        let any = std::fs::File::open("/dev/null").unwrap();
        let error = link(any.as_fd(), c"/", &[1, 2], &[1], false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
