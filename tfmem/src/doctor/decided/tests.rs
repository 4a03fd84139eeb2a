use super::*;

fn circumstances() -> Circumstances {
    Circumstances {
        boot: "b".to_owned(),
        kernel: "6.1.0".to_owned(),
        tfmem: "1.2.3".to_owned(),
        program: (1, 2, 3),
        privileges: vec!["root".to_owned()],
        settings: vec!["none".to_owned()],
    }
}

fn decided() -> Decided {
    let checks = [
        Check::new("ring buffer", "").required(),
        Check::new("mappings, kprobe", "").missing("not compiled in").fix("another kernel"),
        Check::new("uretprobe, seccomp", "").limited("kills"),
        Check::new("CAP_BPF", "").not_tried("no time"),
    ];
    Decided::of(checks.iter())
}

fn memory(folder: &Path) -> Memory {
    Memory { folder: Folder::at(folder, "capabilities") }
}

#[test]
fn outcomes_have_names_and_words() {
    let decided = decided();
    let words: Vec<(String, String)> = decided.in_words().into_iter().collect();
    let expected = [
        ("cap_bpf", "not tried: no time"),
        ("mappings_kprobe", "missing: not compiled in"),
        ("ring_buffer", "ok"),
        ("uretprobe_seccomp", "limited: kills"),
    ];
    assert_eq!(words, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    assert_eq!(decided.get("mappings_kprobe").and_then(Tried::fix), Some("another kernel"));
    assert_eq!(decided.lacking().count(), 0);
}

#[test]
fn what_was_decided_is_remembered_under_the_same_circumstances_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, now) = (memory(folder.path()), circumstances());
    assert_eq!(memory.load(&now), None);
    memory.store(&now, &decided());
    assert_eq!(memory.load(&now), Some(decided()));
    let changes: [fn(&mut Circumstances); 6] = [
        |other| other.boot.push('x'),
        |other| other.kernel.push('x'),
        |other| other.tfmem.push('x'),
        |other| other.program.2 += 1,
        |other| other.privileges.clear(),
        |other| other.settings.clear(),
    ];
    for change in changes {
        let mut other = now.clone();
        change(&mut other);
        assert_eq!(memory.load(&other), None, "{other:?}");
    }
}

#[test]
fn a_machine_that_cannot_trace_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, now) = (memory(folder.path()), circumstances());
    let unable = Decided::of([Check::new("uprobe", "").required().missing("refused")].iter());
    assert_eq!(unable.lacking().map(|(name, _)| name).collect::<Vec<_>>(), ["uprobe"]);
    memory.store(&now, &unable);
    assert_eq!(memory.load(&now), None);
    let unknown = Circumstances { boot: String::new(), ..now };
    memory.store(&unknown, &decided());
    assert_eq!(memory.load(&unknown), None, "whether it is the same boot cannot be told");
}

#[test]
fn a_damaged_or_foreign_entry_is_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, now) = (memory(folder.path()), circumstances());
    memory.store(&now, &decided());
    let file = memory.file().unwrap();
    let good = fs::read(&file).unwrap();
    for cut in 0..good.len() {
        fs::write(&file, &good[..cut]).unwrap();
        assert_eq!(memory.load(&now), None, "cut at {cut}");
    }
    let text = String::from_utf8(good.clone()).unwrap();
    for (from, to) in [("\"missing\"", "\"fine\""), ("\"required\":true", "\"required\":1"), ("\"decided\":", "\"x\":")]
    {
        assert!(text.contains(from), "{from} is not in {text}");
        fs::write(&file, text.replace(from, to)).unwrap();
        assert_eq!(memory.load(&now), None, "{to}");
    }
    fs::write(&file, vec![b' '; LARGEST as usize + 1]).unwrap();
    assert_eq!(memory.load(&now), None, "too large");
    // What everybody may write says nothing.
    fs::write(&file, &good).unwrap();
    let everybody: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&file, everybody).unwrap();
    assert_eq!(memory.load(&now), None, "everybody's");
    // Nor does a link to somewhere else.
    fs::rename(&file, folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &file).unwrap();
    assert_eq!(memory.load(&now), None, "a link");
}
