//! Values with a unit, as people write them: `64MiB`, `10s`, `1%`.

use std::{fmt, time::Duration};

use bytesize::ByteSize;
use serde::Deserialize;

/// A size such as `64MiB`. A bare number is refused: bytes or megabytes could be meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Bytes(pub u64);

/// A time such as `10s`, `5min` or `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Time(pub Duration);

/// A share of one processor core such as `1%`, kept in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Share(pub u32);

impl Bytes {
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl Time {
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0.as_nanos() as u64
    }
}

impl Share {
    pub const fn percent(n: u32) -> Self {
        Self(n * 100)
    }

    /// Of one core, 1.0 being all of it.
    #[must_use]
    pub fn of_core(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 100.0)
    }
}

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let has_unit = text.trim().ends_with(['B', 'b']);
        let size = text.trim().parse::<ByteSize>().ok().filter(|_| has_unit);
        size.map(|size| Self(size.as_u64())).ok_or_else(|| format!("`{text}` is no size: write it as \"64MiB\""))
    }
}

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let time = humantime::parse_duration(text.trim());
        time.map(Self).map_err(|_| format!("`{text}` is no time: write it as \"10s\" or \"5min\""))
    }
}

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let share = || {
            let percent: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
            (0.0..=10_000.0).contains(&percent).then(|| (percent * 100.0).round() as u32)
        };
        share().map(Self).ok_or_else(|| format!("`{text}` is no share of a core: write it as \"1%\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_need_their_unit() {
        assert_eq!(Bytes::try_from("64MiB".to_owned()), Ok(Bytes::mib(64)));
        assert_eq!(Bytes::try_from("1 kB".to_owned()), Ok(Bytes(1000)));
        assert_eq!(Time::try_from("1min 30s".to_owned()), Ok(Time::secs(90)));
        assert_eq!(Share::try_from("0.5%".to_owned()), Ok(Share(50)));
        assert_eq!(Share(50).to_string(), "0.5%");
        for bad in ["", "64", "64 parsecs", "-1MiB", "MiB"] {
            assert!(Bytes::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        for bad in ["", "10", "10 parsecs", "-1s"] {
            assert!(Time::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        for bad in ["", "1", "-1%", "NaN%", "inf%", "20000%"] {
            assert!(Share::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
