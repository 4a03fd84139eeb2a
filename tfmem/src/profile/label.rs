//! What a frame is called in a picture. Names come from the traced program: they must not break the formats that they
//! go into, nor steer what shows them.

use crate::report::{
    model::{Frame, FrameKind},
    units::plain,
};

/// Characters of a name that are shown; C++ templates know no end.
const LONGEST: usize = 400;

/// XML has no way to write them.
const NO_CHARACTERS: [char; 2] = ['\u{fffe}', '\u{ffff}'];

/// What a label is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The function alone, for formats that have places of their own.
    Name,
    /// One line of text.
    Plain,
    /// Between `;` and a number, as in folded stacks.
    Folded,
}

/// A frame's label. Kinds have labels of different forms, so that a name says its kind.
#[must_use]
pub fn label(frame: &Frame, style: Style) -> String {
    let name = plain(frame.name.trim(), LONGEST).replace(NO_CHARACTERS, "\u{fffd}");
    let name = if name.is_empty() { "?".to_owned() } else { name };
    let text = match frame.kind {
        FrameKind::Python if style != Style::Name => format!("{name}{}", python_place(frame)),
        FrameKind::Op => format!("op {name}"),
        FrameKind::Kernel => format!("{name} [kernel]"),
        FrameKind::Native if frame.inlined && style != Style::Name => format!("{name} [inlined]"),
        FrameKind::Native | FrameKind::Python => name,
    };
    if style == Style::Folded { folded(&text) } else { text }
}

/// ` (train.py:31)`
fn python_place(frame: &Frame) -> String {
    let file = frame
        .file
        .as_deref()
        .map(|file| plain(file.rsplit('/').next().unwrap_or(file), 60).replace(NO_CHARACTERS, "\u{fffd}"));
    match (file, frame.line) {
        (Some(file), Some(line)) => format!(" ({file}:{line})"),
        (Some(file), None) => format!(" ({file})"),
        (None, _) => " (Python)".to_owned(),
    }
}

/// Without what separates frames, and so that the end is not taken for a number, the beginning not for a comment.
fn folded(text: &str) -> String {
    let mut out: String = text.chars().map(|c| if c == ';' { ':' } else { c }).collect();
    let number = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == '.');
    if let Some(at) = out.rfind(' ').filter(|&at| out.get(at + 1..).is_some_and(number)) {
        out.replace_range(at..=at, "\u{a0}");
    }
    if out.starts_with("# ") {
        out.replace_range(1..2, "\u{a0}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: FrameKind, name: &str) -> String {
        label(&Frame::named(kind, name), Style::Folded)
    }

    #[test]
    fn kinds_are_told_apart() {
        let python =
            Frame { file: Some("/a/train.py".to_owned()), line: Some(31), ..Frame::named(FrameKind::Python, "f") };
        assert_eq!(label(&python, Style::Plain), "f (train.py:31)");
        assert_eq!(shown(FrameKind::Op, "MatMul_1"), "op MatMul_1");
        assert_eq!(shown(FrameKind::Kernel, "do_mmap"), "do_mmap [kernel]");
        let inlined = Frame { inlined: true, ..Frame::named(FrameKind::Native, "a::b") };
        assert_eq!(label(&inlined, Style::Plain), "a::b [inlined]");
    }

    #[test]
    fn names_cannot_pass_for_anything_else() {
        for name in [
            "a;b 5",
            "x 12",
            "x 1.5",
            "# x",
            "a\nb 7",
            "\u{1b}[31m",
            " ",
            "x ",
            "\u{7f}\u{0}",
            "a 1 2",
            ". .",
            "\u{fffe}",
        ] {
            let shown = shown(FrameKind::Native, name);
            assert!(!shown.contains([';', '\n', '\u{1b}', '\0', '\u{fffe}']) && !shown.is_empty(), "{shown:?}");
            assert_eq!(shown.trim(), shown);
            let last = shown.rsplit(' ').next().unwrap_or_default();
            assert!(last == shown || !last.chars().all(|c| c.is_ascii_digit() || c == '.'), "{shown:?}");
            assert!(!shown.starts_with("# "), "{shown:?}");
        }
        assert!(shown(FrameKind::Native, &"x".repeat(100_000)).chars().count() <= LONGEST);
    }
}
