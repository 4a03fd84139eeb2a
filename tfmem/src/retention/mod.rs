//! Boundaries, survivors, causes, verdicts.
