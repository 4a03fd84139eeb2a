//! What the kernel says about itself, read from its own files. Nothing is tried here.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Inodes of the initial namespaces (`include/linux/proc_ns.h`: `PROC_PID_INIT_INO`, `PROC_USER_INIT_INO`).
const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;
const INITIAL_USER_NAMESPACE: u64 = 0xefff_fffd;

/// Major and minor number of a kernel release.
pub type Version = (u32, u32);

#[must_use]
pub fn release() -> String {
    line("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Another one after each boot; empty: not known.
#[must_use]
pub fn boot_id() -> String {
    line("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[must_use]
pub fn version(release: &str) -> Option<Version> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Releases in which a return probe could get a program with a seccomp filter killed: the return goes through a system
/// call of its own since 6.11, which filters did not know; 6.14 lets it through, and stable series got that later.
#[must_use]
pub const fn may_have_seccomp_bug(version: Version) -> bool {
    matches!(version, (6, 11..=13))
}

/// `None`: the kernel has no lockdown, or hides it.
#[must_use]
pub fn lockdown() -> Option<String> {
    selected(&line("/sys/kernel/security/lockdown")?)
}

/// The chosen one of `none [integrity] confidentiality`.
fn selected(modes: &str) -> Option<String> {
    Some(modes.split_once('[')?.1.split_once(']')?.0.to_owned())
}

#[must_use]
pub fn perf_event_paranoid() -> Option<i32> {
    line("/proc/sys/kernel/perf_event_paranoid")?.parse().ok()
}

/// `None`: Yama is not built in.
#[must_use]
pub fn ptrace_scope() -> Option<i32> {
    line("/proc/sys/kernel/yama/ptrace_scope")?.parse().ok()
}

/// `None`: not known.
#[must_use]
pub fn in_initial_pid_namespace() -> Option<bool> {
    namespace("pid").map(|inode| inode == INITIAL_PID_NAMESPACE)
}

/// `None`: not known.
#[must_use]
pub fn in_initial_user_namespace() -> Option<bool> {
    namespace("user").map(|inode| inode == INITIAL_USER_NAMESPACE)
}

fn namespace(kind: &str) -> Option<u64> {
    inode(fs::read_link(format!("/proc/self/ns/{kind}")).ok()?.to_str()?)
}

/// The number in `pid:[4026531836]`.
fn inode(link: &str) -> Option<u64> {
    link.split_once(":[")?.1.strip_suffix(']')?.parse().ok()
}

/// Where a library of this name lies that the dynamic linker would find by itself.
#[must_use]
pub fn library(name: &str) -> Option<PathBuf> {
    let usual = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
    let usual = usual.iter().map(PathBuf::from);
    linker_folders().into_iter().chain(usual).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Folders named in the dynamic linker's configuration.
fn linker_folders() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir("/etc/ld.so.conf.d")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    files.insert(0, PathBuf::from("/etc/ld.so.conf"));
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).flat_map(|text| folders(&text)).collect()
}

fn folders(configuration: &str) -> Vec<PathBuf> {
    let lines = configuration.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| line.starts_with('/')).map(PathBuf::from).collect()
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(Path::new(path)).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions() {
        assert_eq!(version("6.1.0-50-amd64"), Some((6, 1)));
        assert_eq!(version("5.15.0-1084-aws"), Some((5, 15)));
        assert_eq!(version("6.12.111+deb12-amd64"), Some((6, 12)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version(""), None);
        assert_eq!(version("six"), None);
    }

    #[test]
    fn the_bug_with_seccomp_is_known_by_release() {
        let affected = |text| version(text).is_some_and(may_have_seccomp_bug);
        assert!(affected("6.11.0") && affected("6.13.9-1"));
        assert!(!affected("6.10.14") && !affected("6.14.0") && !affected("5.12.0"));
    }

    #[test]
    fn the_kernels_own_notations() {
        assert_eq!(selected("none [integrity] confidentiality").as_deref(), Some("integrity"));
        assert_eq!(selected("none"), None);
        assert_eq!(inode("pid:[4026531836]"), Some(INITIAL_PID_NAMESPACE));
        assert_eq!(inode("pid"), None);
        let text = "# comment\ninclude /etc/ld.so.conf.d/*.conf\n/opt/lib # why\n\n  /usr/local/lib\n";
        assert_eq!(folders(text), [PathBuf::from("/opt/lib"), PathBuf::from("/usr/local/lib")]);
    }
}
