//! What was tried and what came of it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum Outcome {
    #[serde(rename = "ok")]
    Works,
    /// tfmem runs, but knows or does less; the reason says what.
    #[serde(rename = "limited")]
    Degraded(String),
    Missing(String),
    NotTried(String),
}

impl Outcome {
    /// Nothing is known against tracing.
    #[must_use]
    pub const fn allows(&self) -> bool {
        matches!(self, Self::Works | Self::Degraded(_))
    }
}

/// One thing that tfmem asks of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Heading under which it is shown.
    pub group: &'static str,
    pub name: &'static str,
    /// What tfmem needs it for.
    pub purpose: &'static str,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What was found: a version, a figure, a mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// How to get what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Without it nothing can be traced.
    pub required: bool,
    /// A missing privilege, which the user can get; the machine itself lacks nothing.
    #[serde(skip)]
    pub privilege: bool,
}

impl Check {
    /// A check that passed; refine it with the methods below.
    #[must_use]
    pub const fn new(name: &'static str, purpose: &'static str) -> Self {
        Self {
            group: "",
            name,
            purpose,
            outcome: Outcome::Works,
            found: None,
            fix: None,
            required: false,
            privilege: false,
        }
    }

    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    #[must_use]
    pub fn found(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    #[must_use]
    pub fn limited(self, reason: impl Into<String>) -> Self {
        Self { outcome: Outcome::Degraded(reason.into()), ..self }
    }

    #[must_use]
    pub fn missing(self, reason: impl Into<String>) -> Self {
        Self { outcome: Outcome::Missing(reason.into()), ..self }
    }

    #[must_use]
    pub fn not_tried(self, reason: impl Into<String>) -> Self {
        Self { outcome: Outcome::NotTried(reason.into()), ..self }
    }

    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    #[must_use]
    pub fn privilege(mut self) -> Self {
        self.privilege = true;
        self
    }

    /// Nothing is known against tracing.
    #[must_use]
    pub const fn allows(&self) -> bool {
        self.outcome.allows()
    }

    #[must_use]
    pub const fn works(&self) -> bool {
        matches!(self.outcome, Outcome::Works)
    }
}

/// May tfmem trace here?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ready,
    /// Nothing but privileges is missing, as far as could be tried.
    NeedsPrivilege,
    Unable,
}

#[must_use]
pub fn verdict(checks: &[Check]) -> Verdict {
    let mut lacking = checks.iter().filter(|check| check.required && !check.allows()).peekable();
    if lacking.peek().is_none() {
        return Verdict::Ready;
    }
    // What was not tried for want of a privilege may work with it.
    let privileges = lacking.any(|check| check.privilege);
    if privileges { Verdict::NeedsPrivilege } else { Verdict::Unable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_required_decides() {
        let fine = Check::new("a", "").required();
        let spare = Check::new("b", "").missing("no");
        assert_eq!(verdict(&[fine.clone(), spare]), Verdict::Ready);
        let limited = Check::new("c", "").required().limited("a little");
        assert_eq!(verdict(&[fine.clone(), limited]), Verdict::Ready);
        let gone = Check::new("d", "").required().missing("no");
        assert_eq!(verdict(&[fine, gone.clone()]), Verdict::Unable);
        let privilege = Check::new("e", "").required().privilege().missing("no");
        let untried = Check::new("f", "").required().not_tried("no");
        assert_eq!(verdict(&[untried.clone(), privilege, gone]), Verdict::NeedsPrivilege);
        assert_eq!(verdict(&[untried]), Verdict::Unable);
    }

    #[test]
    fn json_is_flat() {
        let check = Check::new("a", "for it").missing("why").fix("how");
        let json = serde_json::to_value(&check).unwrap();
        let expected = serde_json::json!({ "group": "", "name": "a", "purpose": "for it", "outcome": "missing", "reason": "why", "fix": "how", "required": false });
        assert_eq!(json, expected);
    }
}
