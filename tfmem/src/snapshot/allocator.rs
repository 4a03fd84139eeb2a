//! Which allocator a program uses, where it is not glibc's.

use super::space::Space;

/// Parts of the names of files.
const KNOWN: [(&str, &str); 5] = [
    ("libjemalloc", "jemalloc"),
    ("libtcmalloc", "tcmalloc"),
    ("libmimalloc", "mimalloc"),
    ("ld-musl", "musl"),
    ("libc.musl", "musl"),
];

/// By the files that are mapped.
#[must_use]
pub fn name(space: &Space) -> &'static str {
    let mapped = |part: &str| space.areas.iter().any(|area| area.name.contains(part));
    KNOWN.iter().find(|(part, _)| mapped(part)).map_or("unknown", |(_, name)| name)
}

/// The same where glibc's arenas are there: another one may have been put before them.
#[must_use]
pub fn name_with_glibc(space: &Space) -> &'static str {
    match name(space) {
        "unknown" | "musl" => "glibc",
        other => other,
    }
}
