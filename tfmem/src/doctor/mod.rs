//! Filled in stage by stage.
