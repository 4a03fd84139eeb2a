//! What the agent tells of the host, as figures.

pub mod family;
pub mod openmetrics;
pub mod own;
pub mod processes;
