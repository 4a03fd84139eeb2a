//! Exit statuses.

/// tfmem itself failed.
pub const FAILED: u8 = 1;
/// Wrong usage, or a privilege is missing.
pub const USAGE: u8 = 2;
/// `--fail-above` was met.
pub const ABOVE_LIMIT: u8 = 3;

/// Why a command ends without a report.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: USAGE, message: message.into() }
    }

    pub fn with_status(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub const fn status(&self) -> u8 {
        self.status
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { status: FAILED, message: format!("{error:#}") }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self { status: FAILED, message: error.to_string() }
    }
}
