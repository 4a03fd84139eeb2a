//! Which line of Python is the user's own: the innermost one that is neither a framework's nor Python's.

use crate::event::{PythonCode, StackId};
use crate::ledger::stacks::{Place, Stacks};

/// Packages whose lines say nothing to those who use them.
const FRAMEWORKS: [&str; 8] = ["tensorflow", "keras", "tf_keras", "numpy", "wrapt", "absl", "google", "tree"];
/// Where packages are installed.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// Whose code a file is, the best for naming a line first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    User,
    /// A package that is no framework.
    Package,
}

/// `train.py:31 open_job`, of the innermost frame of the user's own. `None`: no frame is.
pub(super) fn line(stacks: &Stacks, id: StackId) -> Option<String> {
    let frames = stacks.get(id)?.frames.iter().filter_map(|&frame| match stacks.place(frame) {
        Place::Python(Some(PythonCode::Known { file, function, line })) => Some((whose(file)?, file, function, line)),
        _ => None,
    });
    // Of equal ones the first, which is the innermost.
    let (_, file, function, line) = frames.min_by_key(|(whose, ..)| *whose)?;
    let short = file.rsplit('/').next().unwrap_or(file);
    Some(line.map_or_else(|| format!("{short} {function}"), |line| format!("{short}:{line} {function}")))
}

/// Has a stack any frame of Python code?
pub(super) fn has_python(stacks: &Stacks, id: StackId) -> bool {
    let is_python = |&frame: &u64| matches!(stacks.place(frame), Place::Python(_));
    stacks.get(id).is_some_and(|stack| stack.frames.iter().any(is_python))
}

/// `None`: a framework's or Python's, or made by one of them.
fn whose(file: &str) -> Option<Whose> {
    if let Some(inside) = PACKAGES.iter().find_map(|folder| file.split_once(folder).map(|(_, inside)| inside)) {
        let package = inside.split(['/', '.']).next().unwrap_or_default();
        let framework =
            |name: &str| package.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '-']));
        return if FRAMEWORKS.iter().any(|name| framework(name)) { None } else { Some(Whose::Package) };
    }
    let name = file.rsplit('/').next().unwrap_or_default();
    let made =
        name.starts_with("__autograph_generated_file") || file.starts_with("<frozen ") || file.starts_with("<__");
    if made || in_python(file) { None } else { Some(Whose::User) }
}

/// `/usr/lib/python3.11/threading.py`
fn in_python(file: &str) -> bool {
    let version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    file.match_indices("/lib/python").any(|(at, folder)| file.get(at + folder.len()..).is_some_and(version))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tfmem_common::python::code;

    use super::*;
    use crate::event::{PythonPlace, Stack};

    #[test]
    fn whose_a_file_is() {
        for (file, expected) in [
            ("/home/u/train.py", Some(Whose::User)),
            ("train.py", Some(Whose::User)),
            ("<stdin>", Some(Whose::User)),
            ("<ipython-input-3-abc>", Some(Whose::User)),
            ("/v/lib/python3.11/site-packages/ours/model.py", Some(Whose::Package)),
            ("/usr/lib/python3/dist-packages/ours.py", Some(Whose::Package)),
            ("/v/lib/python3.11/site-packages/tensorflow/python/ops/x.py", None),
            ("/v/lib/python3.11/site-packages/tensorflow_hub/x.py", None),
            ("/v/lib/python3.11/site-packages/keras/src/x.py", None),
            ("/v/lib/python3.11/site-packages/six.py", Some(Whose::Package)),
            ("/usr/lib/python3.11/threading.py", None),
            ("/opt/lib/pythonic/mine.py", Some(Whose::User)),
            ("<frozen importlib._bootstrap>", None),
            ("<__array_function__ internals>", None),
            ("/tmp/__autograph_generated_filexy12.py", None),
        ] {
            assert_eq!(whose(file), expected, "{file}");
        }
    }

    #[test]
    fn the_innermost_line_of_the_users_own() {
        let known = |file: &str, function: &str, line| PythonCode::Known {
            file: file.to_owned(),
            function: function.to_owned(),
            line,
        };
        let places = [
            known("/v/lib/python3.11/site-packages/keras/a.py", "inner", Some(1)),
            known("/v/lib/python3.11/site-packages/ours/b.py", "helper", Some(2)),
            PythonCode::Gone { address: 1 },
            known("/home/u/train.py", "Trainer.fit", Some(31)),
            known("/home/u/train.py", "<module>", None),
        ];
        let mut stacks = Stacks::default();
        for (number, code) in (1..).zip(places) {
            stacks.add_python(&Arc::new(PythonPlace { number, code }));
        }
        let mut add = |id: u64, frames: &[u64]| {
            let id = StackId::new(id)?;
            let frames = frames.iter().map(|&frame| if frame < 10 { code(frame) } else { frame }).collect();
            stacks.add(&Arc::new(Stack { id, frames, end: 0 }));
            Some(id)
        };
        let ids = [add(1, &[1 << 48, 1, 2, 3, 4, 5]), add(2, &[1, 2]), add(3, &[5]), add(4, &[1, 3, 9]), add(5, &[64])];
        let lines = ids.map(|id| line(&stacks, id.unwrap()));
        let expected = [Some("train.py:31 Trainer.fit"), Some("b.py:2 helper"), Some("train.py <module>"), None, None];
        assert_eq!(lines.each_ref().map(Option::as_deref), expected);
        assert_eq!(ids.map(|id| has_python(&stacks, id.unwrap())), [true, true, true, true, false]);
    }
}
