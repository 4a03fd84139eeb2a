//! Lines of at most [`WIDTH`] columns, in colour or not, with or without characters beyond ASCII.

use crate::report::units::plain;

/// Columns of a line.
pub const WIDTH: usize = 100;

/// How the text may look. The caller decides (terminal or not, `NO_COLOR`, the locale).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    /// No characters beyond ASCII.
    pub ascii: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Bold,
    Bad,
    Good,
    Doubt,
    Dim,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Bad => "\x1b[1;31m",
            Self::Good => "\x1b[32m",
            Self::Doubt => "\x1b[33m",
            Self::Dim => "\x1b[2m",
        }
    }
}

/// Text under construction.
#[derive(Debug, Default)]
pub struct Page {
    style: Style,
    out: String,
}

impl Page {
    #[must_use]
    pub const fn new(style: Style) -> Self {
        Self { style, out: String::new() }
    }

    #[must_use]
    pub fn finish(mut self) -> String {
        // One blank line at the end is a line too many.
        while self.out.ends_with("\n\n") {
            self.out.pop();
        }
        self.out
    }

    pub fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// One line as it is, cut at the width.
    pub fn line(&mut self, text: &str, tone: Tone) {
        let text = self.safe(text.trim_end());
        let text = if text.chars().count() > WIDTH { plain(&text, WIDTH) } else { text };
        self.paint(&text, tone);
        self.out.push('\n');
    }

    /// A line that is never cut: it wraps.
    pub fn headline(&mut self, text: &str) {
        for line in wrapped(&self.safe(text), WIDTH) {
            self.paint(&line, Tone::Bold);
            self.out.push('\n');
        }
    }

    /// A paragraph: `label` in its column, the text wrapped beside it.
    pub fn paragraph(&mut self, label: &str, tone: Tone, text: &str) {
        const INDENT: usize = 2;
        const COLUMN: usize = 14;
        let mut first = true;
        for line in wrapped(&self.safe(text), WIDTH - COLUMN) {
            self.out.push_str(&" ".repeat(INDENT));
            let shown = if first { label } else { "" };
            self.paint(shown, tone);
            let used = shown.chars().count();
            self.out.push_str(&" ".repeat((COLUMN - INDENT).saturating_sub(used)));
            self.out.push_str(&line);
            self.out.push('\n');
            first = false;
        }
    }

    /// Cells of a fixed width (text, width, tone) and a text that is wrapped in the columns behind them.
    pub fn beside(&mut self, cells: &[(&str, usize, Tone)], text: &str) {
        const INDENT: usize = 2;
        let column = INDENT + cells.iter().map(|(_, width, _)| width).sum::<usize>();
        for (i, line) in wrapped(&self.safe(text), WIDTH.saturating_sub(column)).iter().enumerate() {
            if i > 0 {
                self.out.push_str(&" ".repeat(column));
            } else {
                self.out.push_str(&" ".repeat(INDENT));
                for &(cell, width, tone) in cells {
                    let cell = plain(&self.safe(cell), width.saturating_sub(1));
                    self.paint(&cell, tone);
                    self.out.push_str(&" ".repeat(width.saturating_sub(cell.chars().count())));
                }
            }
            self.out.push_str(line);
            self.out.push('\n');
        }
    }

    /// A paragraph that hangs on an arrow under the text column.
    pub fn advice(&mut self, text: &str) {
        self.advice_at(14, text);
    }

    /// The same in another column.
    pub fn advice_at(&mut self, column: usize, text: &str) {
        let arrow = if self.style.ascii { "->" } else { "→ " };
        for (i, line) in wrapped(&self.safe(text), WIDTH.saturating_sub(column + 3)).iter().enumerate() {
            self.out.push_str(&" ".repeat(column));
            self.out.push_str(if i == 0 { arrow } else { "  " });
            if self.style.ascii {
                self.out.push(' ');
            }
            self.out.push_str(line);
            self.out.push('\n');
        }
    }

    /// Parts of one line with a dot between them.
    pub fn joined(&mut self, parts: &[String], tone: Tone) {
        let dot = if self.style.ascii { " - " } else { " · " };
        let text = self.safe(&parts.join(dot));
        for line in wrapped(&text, WIDTH - 2) {
            self.line(&format!("  {line}"), tone);
        }
    }

    fn paint(&mut self, text: &str, tone: Tone) {
        let code = tone.code();
        if self.style.colour && !code.is_empty() && !text.is_empty() {
            self.out.push_str(code);
            self.out.push_str(text);
            self.out.push_str("\x1b[0m");
        } else {
            self.out.push_str(text);
        }
    }

    /// The text without what could control the terminal, and in ASCII where that is asked for.
    fn safe(&self, text: &str) -> String {
        let text = plain(text, 4000);
        if !self.style.ascii || text.is_ascii() {
            return text;
        }
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                _ if c.is_ascii() => out.push(c),
                '…' => out.push_str("..."),
                '→' => out.push_str("->"),
                '·' | '–' | '—' => out.push('-'),
                _ => out.push('?'),
            }
        }
        out
    }
}

/// Words in lines of at most `width`; a word longer than a line is broken. A figure stays with its unit.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in words(text) {
        let mut word = word.as_str();
        let mut len = word.chars().count();
        if used > 0 && used + 1 + len > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        while len > width {
            let cut = word.char_indices().nth(width).map_or(word.len(), |(i, _)| i);
            lines.push(word[..cut].to_owned());
            word = &word[cut..];
            len = word.chars().count();
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += len;
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// The words of a text; a figure and the unit after it (`1.3 MiB`, `38 s`, `55 %`) are one.
fn words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let stem = word.trim_end_matches([',', '.', ')', ';', ':']);
        let is_unit = matches!(stem, "B" | "KiB" | "MiB" | "GiB" | "TiB" | "PiB" | "s" | "min" | "h" | "d" | "%");
        match out.last_mut() {
            Some(last) if is_unit && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => out.push(word.to_owned()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_keeps_figures_whole_and_breaks_giants() {
        assert_eq!(wrapped("a 1.3 MiB b", 7), ["a", "1.3 MiB", "b"]);
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrapped("", 3), [""]);
    }

    #[test]
    fn no_line_is_wider_than_the_page() {
        let mut page = Page::new(Style::default());
        page.paragraph("UNEXPLAINED", Tone::Doubt, &"word ".repeat(80));
        page.advice(&"x".repeat(300));
        page.line(&"y".repeat(300), Tone::Plain);
        page.joined(&vec!["part".to_owned(); 60], Tone::Dim);
        for line in page.finish().lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn ascii_only_where_asked() {
        let mut page = Page::new(Style { ascii: true, colour: false });
        page.advice("é → ü…");
        page.joined(&["a".to_owned(), "b".to_owned()], Tone::Plain);
        assert!(page.finish().is_ascii());
    }

    #[test]
    fn colour_only_where_asked() {
        let mut page = Page::new(Style { ascii: false, colour: true });
        page.line("x", Tone::Bad);
        assert_eq!(page.finish(), "\x1b[1;31mx\x1b[0m\n");
        let mut page = Page::new(Style::default());
        page.line("x\x1b[0m", Tone::Bad);
        assert_eq!(page.finish(), "x\u{fffd}[0m\n");
    }
}
