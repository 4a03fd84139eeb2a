//! Figures as a person reads them: `256.0 MiB`, `41,207`, `38 s`.

const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/// Bytes with one decimal in the largest unit that keeps the figure at or above 1 (below 1 KiB: whole bytes).
#[must_use]
pub fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    // Integer arithmetic: a float would round 1,073,741,823 bytes to "1024.0 MiB".
    let mut unit = 0;
    let mut tenths = tenths_of(n, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        unit += 1;
        tenths = tenths_of(n, unit);
    }
    format!("{}.{} {}", count(tenths / 10), tenths % 10, UNITS[unit])
}

/// `n` in tenths of the unit, rounded to the nearest.
const fn tenths_of(n: u64, unit: usize) -> u64 {
    let size = 1_u128 << (10 * (unit + 1));
    ((n as u128 * 10 + size / 2) / size) as u64
}

/// Bytes that may not be known.
#[must_use]
pub fn bytes_or(n: Option<u64>, unknown: &str) -> String {
    n.map_or_else(|| unknown.to_owned(), bytes)
}

/// A count with separators: `41,207`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1 session`, `4 sessions`.
#[must_use]
pub fn counted(n: u64, noun: &str) -> String {
    let plural = match noun {
        _ if n == 1 => String::new(),
        "process" => "es".to_owned(),
        _ => "s".to_owned(),
    };
    format!("{} {noun}{plural}", count(n))
}

/// A span of time: `0.4 s`, `38 s`, `12 min`, `3 h 20 min`, `2 d 4 h`.
#[must_use]
pub fn span_ms(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..10 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", count(seconds / 86_400), seconds % 86_400 / 3600),
    }
}

/// A share in percent with one decimal, `None` for a share of nothing.
#[must_use]
pub fn percent(part: u64, whole: u64) -> Option<String> {
    if whole == 0 {
        return None;
    }
    let tenths = (u128::from(part) * 1000) / u128::from(whole);
    Some(format!("{}.{} %", tenths / 10, tenths % 10))
}

/// A share in whole percent.
#[must_use]
pub fn percent_whole(part: u64, whole: u64) -> Option<String> {
    if whole == 0 {
        return None;
    }
    Some(format!("{} %", (u128::from(part) * 100 + u128::from(whole) / 2) / u128::from(whole)))
}

/// `1st`, `second` … as words where they read better than figures.
#[must_use]
pub fn ordinal(n: u64) -> String {
    const WORDS: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];
    if let Some(word) = usize::try_from(n).ok().and_then(|n| n.checked_sub(1)).and_then(|n| WORDS.get(n)) {
        return (*word).to_owned();
    }
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{}{suffix}", count(n))
}

/// Text out of a traced program, made safe for a terminal: no control characters, at most `max` characters.
#[must_use]
pub fn plain(text: &str, max: usize) -> String {
    let mut out: String =
        text.chars().take(max + 1).map(|c| if c.is_control() || is_invisible(c) { '\u{fffd}' } else { c }).collect();
    if out.chars().count() > max {
        out = out.chars().take(max.saturating_sub(1)).collect();
        out.push('…');
    }
    out
}

/// Characters that turn the direction of text or hide in it: a name must not be able to rewrite the line it is in.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_use_the_unit_that_fits() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (256 << 20, "256.0 MiB"),
            (68_157_440, "65.0 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (1 << 30, "1.0 GiB"),
            (3 << 40, "3.0 TiB"),
            (u64::MAX, "16,384.0 PiB"),
        ] {
            assert_eq!(bytes(n), text, "{n}");
        }
    }

    #[test]
    fn counts_have_separators_and_plurals() {
        assert_eq!(count(999), "999");
        assert_eq!(count(41_207), "41,207");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(counted(1, "session"), "1 session");
        assert_eq!(counted(2, "process"), "2 processes");
    }

    #[test]
    fn spans_and_shares() {
        assert_eq!(span_ms(400), "0.4 s");
        assert_eq!(span_ms(38_900), "38 s");
        assert_eq!(span_ms(12 * 60_000), "12 min");
        assert_eq!(span_ms(12_000_000), "3 h 20 min");
        assert_eq!(span_ms(187_200_000), "2 d 4 h");
        assert_eq!(percent(974, 1000).as_deref(), Some("97.4 %"));
        assert_eq!(percent(1, 0), None);
        assert_eq!(percent_whole(318, 578).as_deref(), Some("55 %"));
    }

    #[test]
    fn ordinals() {
        let words: Vec<String> = [1, 2, 6, 7, 11, 21, 112].map(ordinal).to_vec();
        assert_eq!(words, ["first", "second", "sixth", "7th", "11th", "21st", "112th"]);
    }

    #[test]
    fn names_cannot_write_to_the_terminal() {
        assert_eq!(plain("a\x1b[31mb\n", 20), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(plain("abcdef", 4), "abc…");
        assert_eq!(plain("abcd", 4), "abcd");
        assert_eq!(plain("x\u{202e}y", 9), "x\u{fffd}y");
    }
}
