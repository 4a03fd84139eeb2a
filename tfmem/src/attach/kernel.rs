//! Where the running kernel keeps what the BPF programs read, from its own type information.
//!
//! Offsets of structure members change between kernel builds, so none is written down here.

mod btf;

use std::path::Path;

use tfmem_common::config::KernelLayout;

use btf::Btf;

/// The kernel's type information (`CONFIG_DEBUG_INFO_BTF`).
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
/// Real ones have 5–10 MB.
const LARGEST: u64 = 256 << 20;

/// Does the running kernel publish its type information?
#[must_use]
pub fn has_type_information() -> bool {
    Path::new(VMLINUX).exists()
}

/// The layout of the running kernel. What is not known is 0, with a sentence why.
#[must_use]
pub fn layout() -> (KernelLayout, Vec<String>) {
    layout_from(Path::new(VMLINUX))
}

/// The same from a BTF file.
#[must_use]
pub fn layout_from(path: &Path) -> (KernelLayout, Vec<String>) {
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(why) => return (KernelLayout::default(), vec![format!("{}: {why}", path.display())]),
    };
    match Btf::parse(&bytes) {
        Ok(btf) => layout_of(&btf),
        Err(why) => (KernelLayout::default(), vec![format!("{}: {why}", path.display())]),
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn layout_of(btf: &Btf) -> (KernelLayout, Vec<String>) {
    let mut layout = KernelLayout::default();
    let mut reasons = Vec::new();
    let wanted: [(&mut u32, &[(&str, &str)]); 8] = [
        (&mut layout.fsbase, &[("task_struct", "thread"), ("thread_struct", "fsbase")]),
        (&mut layout.files, &[("task_struct", "files")]),
        (&mut layout.fdt, &[("files_struct", "fdt")]),
        (&mut layout.fd, &[("fdtable", "fd")]),
        (&mut layout.inode, &[("file", "f_inode")]),
        (&mut layout.ino, &[("inode", "i_ino")]),
        (&mut layout.sb, &[("inode", "i_sb")]),
        (&mut layout.dev, &[("super_block", "s_dev")]),
    ];
    for (place, path) in wanted {
        let mut sum = Some(0_u32);
        for (structure, member) in path {
            let offset = btf.offset(structure, member);
            if offset.is_none() {
                reasons.push(format!("this kernel has no {structure}.{member}"));
            }
            sum = sum.zip(offset).and_then(|(sum, offset)| sum.checked_add(offset));
        }
        *place = sum.unwrap_or(0);
    }
    (layout, reasons)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop")]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_is_known() {
        if !Path::new(VMLINUX).exists() {
            println!("SKIP the_running_kernel_is_known: no {VMLINUX}");
            return;
        }
        let began = std::time::Instant::now();
        let (layout, reasons) = layout();
        println!("kernel layout in {:?}: {layout:?} {reasons:?}", began.elapsed());
        assert!(reasons.is_empty(), "{reasons:?}");
        for offset in
            [layout.fsbase, layout.files, layout.fdt, layout.fd, layout.inode, layout.ino, layout.sb, layout.dev]
        {
            assert!(offset > 0 && offset % 4 == 0 && offset < 64 << 10, "{layout:?}");
        }
    }

    #[test]
    fn no_type_information_is_said() {
        let (layout, reasons) = layout_from(Path::new("/nonexistent/vmlinux"));
        assert_eq!(layout.fsbase, 0);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"not BTF at all, but long enough for a header").unwrap();
        assert!(layout_from(file.path()).1[0].contains("not BTF"));
    }
}
