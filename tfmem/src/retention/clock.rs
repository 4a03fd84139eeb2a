//! Boot-clock nanoseconds as RFC 3339 in UTC. The stage has no clock: the caller says how far boot is from the epoch.

const DAY: u64 = 86_400;

/// Where the boot clock's zero lies on the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallClock {
    /// Unix time in ns at boot-clock 0.
    pub boot_unix_ns: u64,
}

impl WallClock {
    /// `2026-05-04T12:34:56.789012Z`.
    #[must_use]
    pub fn rfc3339(self, boot_ns: u64) -> String {
        let unix = self.boot_unix_ns.saturating_add(boot_ns);
        let micros = unix / 1000 % 1_000_000;
        let seconds = unix / 1_000_000_000;
        let (year, month, day) = civil(seconds / DAY);
        let of_day = seconds % DAY;
        format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{micros:06}Z",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60
        )
    }
}

/// Year, month and day of a day counted from 1970-01-01 (the usual calculation with eras of 400 years and years that
/// begin in March, so that the leap day is the last of its year).
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        let zero = WallClock::default();
        assert_eq!(zero.rfc3339(0), "1970-01-01T00:00:00.000000Z");
        for (seconds, text) in [
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000000Z"),
            (4_102_444_799, "2099-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(zero.rfc3339(seconds * 1_000_000_000), text);
        }
    }

    #[test]
    fn boot_time_is_added() {
        let clock = WallClock { boot_unix_ns: 1_700_000_000_000_000_000 };
        assert_eq!(clock.rfc3339(1_234_567), "2023-11-14T22:13:20.001234Z");
    }
}
