//! The report: data, text, JSON.
pub mod model;
