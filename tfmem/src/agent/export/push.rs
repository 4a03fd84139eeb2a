//! One attempt to send a message, and what its outcome asks for.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use ureq::{
    Agent,
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
};

use super::What;
use crate::agent::config::read_headers;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Sent,
    /// Another time: not before this, if the other side said so.
    Later(String, Option<Duration>),
    /// The other side will never take this message.
    Never(String),
}

/// Where to, and how.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub address: String,
    pub timeout: Duration,
    pub ca: Option<PathBuf>,
    pub headers_file: Option<PathBuf>,
}

pub struct Client {
    agent: Agent,
    endpoint: String,
    headers: Option<PathBuf>,
}

impl Client {
    /// # Errors
    /// When the certificates cannot be read.
    pub fn new(settings: &Endpoint) -> Result<Self> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = &settings.ca {
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates(path)?));
        }
        let agent: Agent = Agent::config_builder()
            .tls_config(tls.build())
            .timeout_global(Some(settings.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("tfmem/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let endpoint = settings.address.trim_end_matches('/').to_owned();
        Ok(Self { agent, endpoint, headers: settings.headers_file.clone() })
    }

    pub fn send(&self, what: What, body: &[u8]) -> Outcome {
        let mut request =
            self.agent.post(format!("{}{}", self.endpoint, what.path())).header("content-type", what.content_type());
        // Read each time: tokens are renewed.
        match self.headers.as_deref().map(read_headers).transpose() {
            Ok(headers) => {
                for (name, value) in headers.unwrap_or_default() {
                    request = request.header(name, value);
                }
            }
            Err(error) => return Outcome::Later(error, None),
        }
        match request.send(body) {
            Ok(response) => {
                let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
                judge(response.status().as_u16(), after)
            }
            // Its text may repeat the address, and nothing of a header.
            Err(error) => Outcome::Later(error.to_string(), None),
        }
    }
}

/// By <https://opentelemetry.io/docs/specs/otlp/#failures-1>: 429, 502, 503 and 504 are to be tried again. So are other
/// failures of the server and of those between, which pass; what says that the message is wrong does not.
fn judge(status: u16, retry_after: Option<&str>) -> Outcome {
    let said = format!("status {status}");
    match status {
        200..=299 => Outcome::Sent,
        // Not allowed, not there, too slow, too many: the configuration or the other side can change.
        401 | 403 | 404 | 408 | 429 | 500..=599 | 300..=399 => Outcome::Later(said, retry_after.and_then(seconds)),
        _ => Outcome::Never(said),
    }
}

/// Seconds, or a date.
fn seconds(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate(text)?;
    date.duration_since(std::time::SystemTime::now()).ok()
}

/// `Wed, 21 Oct 2026 07:28:00 GMT`
fn httpdate(text: &str) -> Option<std::time::SystemTime> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| name == month)? + 1;
    humantime::parse_rfc3339(&format!("{year}-{month:02}-{day:0>2}T{time}Z")).ok()
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let pem = fs::read(path).with_context(|| format!("{}", path.display()))?;
    let items = parse_pem(&pem).map(|item| item.map_err(io::Error::other)).collect::<io::Result<Vec<_>>>();
    let items = items.with_context(|| format!("{}", path.display()))?;
    Ok(items
        .into_iter()
        .filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_whether_to_try_again() {
        assert_eq!(judge(200, None), Outcome::Sent);
        assert_eq!(judge(429, Some("7")), Outcome::Later("status 429".to_owned(), Some(Duration::from_secs(7))));
        assert_eq!(judge(503, None), Outcome::Later("status 503".to_owned(), None));
        assert_eq!(judge(503, Some("soon")), Outcome::Later("status 503".to_owned(), None));
        assert_eq!(judge(400, None), Outcome::Never("status 400".to_owned()));
        assert_eq!(judge(413, Some("7")), Outcome::Never("status 413".to_owned()));
    }

    #[test]
    fn a_date_says_until_when() {
        let day = Duration::from_secs(86_400);
        let date = httpdate("Wed, 1 Jan 2098 00:00:00 GMT").unwrap();
        assert!(date.duration_since(std::time::SystemTime::now()).unwrap() > day);
        assert_eq!(seconds("Fri, 31 Dec 1999 23:59:59 GMT"), None, "over");
        assert_eq!(httpdate("yesterday"), None);
    }
}
