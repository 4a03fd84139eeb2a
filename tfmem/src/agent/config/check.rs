//! What the types cannot say: files that must be readable, addresses that must make sense.

use std::{fs, ops::Range, path::Path};

use toml::Spanned;
use ureq::tls::{PemItem, parse_pem};

use super::{Config, Misplaced};

/// The kernel's buffer: a page at least, and less than the machine has.
const BUFFER: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

pub(super) fn all(config: &Config, text: &str) -> Result<(), Misplaced> {
    if !BUFFER.contains(&config.trace.buffer.0) {
        return Err((key(text, "buffer"), "`buffer`: from 64KiB to 1GiB".to_owned()));
    }
    if config.trace.totals_every.0.as_millis() < 100 {
        return Err((key(text, "totals_every"), "`totals_every`: at least 100ms".to_owned()));
    }
    if config.escalation.rule.iter().any(|rule| rule.boundaries < 2) {
        return Err((key(text, "boundaries"), "`boundaries`: at least 2".to_owned()));
    }
    if let Some(otlp) = &config.otlp {
        endpoint(&otlp.endpoint)?;
        otlp.ca.as_ref().map_or(Ok(()), certificates)?;
        otlp.headers_file.as_ref().map_or(Ok(()), headers)?;
    }
    if let Some(pprof) = &config.pprof {
        endpoint(&pprof.endpoint)?;
        pprof.ca.as_ref().map_or(Ok(()), certificates)?;
        pprof.headers_file.as_ref().map_or(Ok(()), headers)?;
    }
    if let Some(group) = &config.control.group {
        let known = nix::unistd::Group::from_name(group.get_ref()).is_ok_and(|group| group.is_some());
        if !known {
            return Err((Some(group.span()), format!("no group is called `{}`", group.get_ref())));
        }
    }
    Ok(())
}

/// Where a key is first set, for values that carry no place.
fn key(text: &str, name: &str) -> Option<Range<usize>> {
    let start = text.match_indices(name).find(|(at, _)| {
        let line = text.get(..*at).and_then(|before| before.rsplit('\n').next());
        let behind = text.get(at + name.len()..).unwrap_or_default().trim_start();
        line.is_some_and(|line| line.trim().is_empty()) && behind.starts_with('=')
    })?;
    Some(start.0..start.0 + name.len())
}

fn endpoint(value: &Spanned<String>) -> Result<(), Misplaced> {
    let url = value.get_ref();
    let wrong = |what: String| Err((Some(value.span()), what));
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return wrong(format!("`{url}` is no http:// or https:// address"));
    };
    if rest.contains('@') {
        // Not repeated: what stands before the @ may be a secret.
        return wrong("an address with a user or a password in it: put these into `headers_file`".to_owned());
    }
    match url.parse::<ureq::http::Uri>() {
        Ok(uri) if uri.host().is_some_and(|host| !host.is_empty()) => Ok(()),
        _ => wrong(format!("`{url}` is no http:// or https:// address")),
    }
}

fn certificates(value: &Spanned<std::path::PathBuf>) -> Result<(), Misplaced> {
    let path = value.get_ref();
    let wrong = |what: String| Err((Some(value.span()), format!("{}: {what}", path.display())));
    let pem = match fs::read(path) {
        Ok(pem) => pem,
        Err(error) => return wrong(format!("cannot be read: {error}")),
    };
    match parse_pem(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(items) if items.iter().any(|item| matches!(item, PemItem::Certificate(_))) => Ok(()),
        Ok(_) => wrong("holds no certificate".to_owned()),
        Err(error) => wrong(error.to_string()),
    }
}

fn headers(value: &Spanned<std::path::PathBuf>) -> Result<(), Misplaced> {
    read_headers(value.get_ref()).map(drop).map_err(|what| (Some(value.span()), what))
}

/// The headers in a file, one a line.
///
/// # Errors
/// Says what is wrong, and repeats nothing of what is in it.
pub fn read_headers(path: &Path) -> Result<Vec<(String, String)>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        let valid = ureq::http::HeaderName::from_bytes(name.as_bytes()).is_ok()
            && ureq::http::HeaderValue::from_str(value).is_ok();
        valid.then(|| (name.to_owned(), value.to_owned()))
    };
    lines
        .map(|(number, line)| {
            header(line).ok_or_else(|| format!("{}: line {} is no header", path.display(), number + 1))
        })
        .collect()
}
