//! What each feature needs of the kernel, and what is lost without it. The table in the README is made of this.

/// The oldest kernel that tfmem promises to work on.
pub const OLDEST_KERNEL: (u32, u32) = (5, 15);

/// Something tfmem does with the kernel's help.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    pub what: &'static str,
    /// Kernel version, configuration, or setting.
    pub needs: &'static str,
    pub without: &'static str,
}

const fn feature(what: &'static str, needs: &'static str, without: &'static str) -> Feature {
    Feature { what, needs, without }
}

/// Every feature that not every kernel from [`OLDEST_KERNEL`] on has, and those that made it the oldest.
pub const FEATURES: &[Feature] = &[
    feature("event buffer (BPF ring buffer), `CAP_BPF`, boot clock in BPF", "5.8", "nothing works"),
    feature("telling probes apart (attach cookies in uprobes)", "5.15", "nothing works"),
    feature("probes in libraries", "`CONFIG_UPROBE_EVENTS`, `CONFIG_BPF_EVENTS`", "nothing works"),
    feature(
        "the probes of a library come out at once (uprobe-multi links, `--attach multi`)",
        "6.6",
        "`--attach auto` takes a perf event for each probe: they come out one after the other",
    ),
    feature(
        "processes (tracepoints of fork, exec, exit)",
        "`CONFIG_TRACEPOINTS`, `CONFIG_BPF_EVENTS`",
        "nothing works",
    ),
    feature(
        "mappings (`--mm tracepoint`)",
        "`CONFIG_FTRACE_SYSCALLS`, tracefs",
        "`--mm auto` takes the next way; System V segments are counted as `mapping_untold_bytes`",
    ),
    feature(
        "mappings, those that the kernel makes too (`--mm kprobe`)",
        "`CONFIG_KPROBE_EVENTS`, no lockdown for confidentiality",
        "`--mm auto` takes the next way",
    ),
    feature(
        "mappings (`--mm poll`)",
        "`/proc`",
        "the last way: what comes and goes between two readings is not seen, a library that is mapped later gets its \
         probes up to a second late",
    ),
    feature(
        "stopping a program until a library's probes are in (`bpf_send_signal_thread`)",
        "5.6, and not `--mm poll`",
        "the first calls of a library that is loaded later are missed",
    ),
    feature("stacks in system calls (`bpf_task_pt_regs`)", "5.15", "nothing works"),
    feature("names of ops", "BTF", "allocations have no op's name"),
    feature("stopping once for each file", "BTF", "`run` stops the program at every mapping of code"),
    feature("tracepoint numbers", "tracefs", "mounted for one thread of tfmem alone, if it is not mounted"),
    feature(
        "memory at the very end of a process (`run`)",
        "ptrace (Yama's `ptrace_scope` below 3)",
        "`run` does not start; `trace` works",
    ),
    feature(
        "return probes in programs under a seccomp filter",
        "not 6.11–6.13, unless fixed there",
        "the filter may kill the program",
    ),
    feature("count of verified instructions (`tfmem doctor`)", "5.16", "not shown"),
];

/// The table as Markdown.
#[must_use]
pub fn table() -> String {
    let rows = FEATURES.iter().map(|f| format!("| {} | {} | {} |\n", f.what, f.needs, f.without));
    ["| feature | needs | without it |\n|---|---|---|\n".to_owned()].into_iter().chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const BEGIN: &str = "<!-- kernel features: begin -->\n";
    const END: &str = "<!-- kernel features: end -->\n";

    /// `TFMEM_BLESS=1` writes it.
    #[test]
    fn the_readme_has_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
        let readme = fs::read_to_string(path).unwrap();
        let (before, rest) = readme.split_once(BEGIN).expect("the README has a place for the table");
        let (table_there, after) = rest.split_once(END).expect("the table ends");
        if std::env::var_os("TFMEM_BLESS").is_some() {
            fs::write(path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
        } else {
            assert_eq!(table_there, table(), "TFMEM_BLESS=1 writes it");
        }
    }
}
