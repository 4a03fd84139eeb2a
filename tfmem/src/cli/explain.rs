//! `tfmem explain [CAUSE]`

use std::io::{self, IsTerminal as _, Write as _};

use super::{args::Explain, exit::Failure};
use crate::report::{
    explained::{self, Explained},
    text::{Style, listed},
};

/// # Errors
/// When there is no such cause.
pub fn explain(args: &Explain) -> Result<u8, Failure> {
    let style = Style { colour: io::stdout().is_terminal(), ascii: false };
    let all: Vec<&Explained> = match &args.cause {
        None => explained::ALL.iter().collect(),
        Some(name) => {
            let found = explained::by_name(name).ok_or_else(|| {
                let names: Vec<&str> = explained::ALL.iter().map(|explained| explained.name).collect();
                Failure::usage(format!("there is no cause {name:?}; there are {}", names.join(", ")))
            })?;
            vec![found]
        }
    };
    let text = listed(&all, args.cause.is_some(), style);
    // A reader that closes the pipe has read enough.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(0)
}
