//! Who a process is, from `/proc/PID`.

use std::{fs, io};

use super::{job, ptrace};
use crate::event::ProcessInfo;

/// # Errors
/// When the process is gone or may not be read.
pub fn read(pid: u32, attached: bool) -> io::Result<ProcessInfo> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (comm, ppid, start_ticks) =
        parse_stat(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat: not understood")))?;
    let cmdline = cmdline(pid);
    let job = job::read(pid, &cmdline);
    Ok(ProcessInfo {
        ppid,
        comm,
        cmdline,
        exe: fs::read_link(format!("/proc/{pid}/exe")).map_or_else(|_| String::new(), |exe| exe.display().to_string()),
        started_at: start_ticks.saturating_mul(1_000_000_000 / ticks_per_second()),
        cgroup: cgroup(pid),
        attached,
        job,
    })
}

/// When the process started, in clock ticks since boot: with the pid, who it is.
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|(_, _, start)| start)
}

/// State letter of `/proc/PID/stat`; `None` when the process is gone.
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    parent_and_state(pid).map(|(_, state)| state)
}

/// The parent and the state letter of a process or a thread.
#[must_use]
pub fn parent_and_state(pid: u32) -> Option<(u32, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

/// One line of `/proc/PID/status` of a process or a thread, such as `Tgid:`, without its name.
#[must_use]
pub fn status(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
}

/// The same as a number of KiB.
#[must_use]
pub fn kib(pid: u32, name: &str) -> Option<u64> {
    status(pid, name)?.split_whitespace().next()?.parse().ok()
}

/// Has any thread of the process not ended yet? (The main thread may end before the others: it is a zombie then.)
#[must_use]
pub fn alive(pid: u32) -> bool {
    tasks(pid).any(|tid| !matches!(state(tid), None | Some('Z' | 'X')))
}

/// The process that a thread belongs to.
#[must_use]
pub fn process_of(tid: u32) -> Option<u32> {
    status(tid, "Tgid:")?.parse().ok()
}

/// Thread `tid` is at its end: does the whole process end with it? So it is when every other thread has ended, stands
/// at its own end, or has been sent the kill that `exit_group` sends. Between the kill and its end a thread runs for a
/// moment, and that is waited for; a thread that sleeps and was not killed lives on. To be asked by the thread that
/// follows these.
#[must_use]
pub fn ending(pid: u32, tid: u32) -> bool {
    for _ in 0..5 {
        let mut living = tasks(pid).filter(|&other| other != tid && !is_dying(other)).peekable();
        if living.peek().is_none() {
            return true;
        }
        if living.any(|other| state(other) != Some('R') && !is_dying(other)) {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
    false
}

fn is_dying(tid: u32) -> bool {
    const SIGKILL_BIT: u64 = 1 << 8;
    match state(tid) {
        None | Some('Z' | 'X') => return true,
        // Stopped for us: where it makes a thread or gets a signal as well.
        Some('t') if ptrace::at_its_end(tid) => return true,
        _ => {}
    }
    let pending = status(tid, "SigPnd:").and_then(|bits| u64::from_str_radix(&bits, 16).ok());
    pending.is_some_and(|bits| bits & SIGKILL_BIT != 0)
}

fn tasks(pid: u32) -> impl Iterator<Item = u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// Living descendants of a process, parents before children.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for task in tasks(parent) {
            // Needs CONFIG_PROC_CHILDREN, which every distribution sets.
            let children = fs::read_to_string(format!("/proc/{parent}/task/{task}/children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse::<u32>().ok());
            let new: Vec<u32> = children.filter(|child| !found.contains(child)).collect();
            found.extend(new);
        }
    }
    found.remove(0);
    found
}

/// Name, parent, start (clock ticks since boot). The name may hold anything, parentheses too: it ends at the last one.
fn parse_stat(stat: &str) -> Option<(String, u32, u64)> {
    let (head, tail) = stat.rsplit_once(')')?;
    let comm = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = tail.split_whitespace().collect();
    // proc(5): fields after the name start with number 3 (state); 4 is ppid, 22 is starttime.
    Some((comm, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

fn cmdline(pid: u32) -> Vec<String> {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let raw = raw.strip_suffix(b"\0").unwrap_or(&raw);
    if raw.is_empty() {
        return Vec::new();
    }
    raw.split(|&byte| byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}

fn cgroup(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    // The unified hierarchy's line is `0::PATH`.
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    (path != "/").then(|| path.to_owned())
}

fn ticks_per_second() -> u64 {
    // USER_HZ is 100 on every x86-64 and arm64 kernel; sysconf tells all the same.
    match nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK) {
        Ok(Some(ticks)) if ticks > 0 => ticks as u64,
        _ => 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_does_not_confuse_the_fields() {
        let stat = "12 (a) R 1 (b)) S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(parse_stat(stat), Some(("a) R 1 (b)".to_owned(), 7, 4242)));
    }

    #[test]
    fn our_own_process() {
        let info = read(std::process::id(), false).unwrap();
        assert!(!info.cmdline.is_empty());
        assert!(info.started_at > 0);
    }
}
