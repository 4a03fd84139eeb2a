//! What an op's name says of the variable it belongs to. Strict: a name of another shape says nothing.

use std::ffi::CStr;

use crate::report::model::Place;

/// The variable that an op of this name initialises or assigns.
///
/// TensorFlow names these ops after the variable: `w/Initializer/zeros`, `w/Assign`, `w/AssignVariableOp`,
/// `dense/kernel/Adam/m/Initializer/zeros`. Anything else may be an op of the user's that merely looks alike.
#[must_use]
pub fn variable_of(op: &str) -> Option<&str> {
    let name = if let Some((before, _)) = op.split_once("/Initializer/") {
        before
    } else {
        let (before, last) = op.rsplit_once('/')?;
        if !is_numbered(last, "Assign") && !is_numbered(last, "AssignVariableOp") {
            return None;
        }
        before
    };
    (!name.is_empty()).then_some(name)
}

/// `Assign`, or `Assign_3` as TensorFlow makes names unique.
fn is_numbered(text: &str, stem: &str) -> bool {
    match text.strip_prefix(stem) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('_').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())),
        None => false,
    }
}

/// The region's text, `None` when nobody said.
#[must_use]
pub fn region_text(region: [u8; 8]) -> Option<String> {
    let mut bytes = [0_u8; 9];
    bytes[..8].copy_from_slice(&region);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}

/// The place of an allocation whose op has this name.
#[must_use]
pub fn place(op: Option<&str>, region: Option<String>) -> Place {
    Place {
        op: op.map(str::to_owned),
        region,
        variable: op.and_then(variable_of).map(str::to_owned),
        python: None,
        python_of: None,
        native: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables() {
        for (op, variable) in [
            ("w/Initializer/zeros", Some("w")),
            ("w0/Initializer/random_uniform/RandomUniform", Some("w0")),
            ("dense/kernel/Initializer/random_uniform", Some("dense/kernel")),
            ("x/Adam/m/Initializer/zeros", Some("x/Adam/m")),
            ("w/AssignVariableOp", Some("w")),
            ("w/Assign", Some("w")),
            ("w/Assign_1", Some("w")),
            ("a/b/AssignVariableOp_12", Some("a/b")),
            ("w/AssignAddVariableOp", None),
            ("w/Assign_x", None),
            ("w/Assign_", None),
            ("AssignVariableOp", None),
            ("/Initializer/zeros", None),
            ("w/Initializer", None),
            ("w/Read/ReadVariableOp", None),
            ("MatMul_1", None),
            ("", None),
        ] {
            assert_eq!(variable_of(op), variable, "{op}");
        }
    }

    #[test]
    fn regions_end_at_the_first_zero() {
        assert_eq!(region_text(*b"output\0\0").as_deref(), Some("output"));
        assert_eq!(region_text(*b"persiste").as_deref(), Some("persiste"));
        assert_eq!(region_text([0; 8]), None);
    }
}
