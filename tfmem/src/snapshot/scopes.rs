//! Whose a device is, and with it the containers of resources on it: a session's, a server's, the eager context's.
//!
//! Each of these has a manager of devices; the manager has a list of them.

use rustc_hash::FxHashMap;

use super::{objects::Kind, owners::Found};
use crate::{event::Scope, target::memory::Memory};

/// Words looked at of one object.
const MOST_WORDS: u64 = 1024;

/// Devices with what they belong to.
#[must_use]
pub fn devices<M: Memory>(found: &Found<'_, '_, M>) -> FxHashMap<u64, Scope> {
    let mut devices = FxHashMap::default();
    // A session on a server of the same process may use the server's devices: the server comes last and counts.
    for (kind, scope) in [(Kind::Context, Scope::Eager), (Kind::Session, Scope::Session), (Kind::Server, Scope::Server)]
    {
        for (_, object) in found.classes.of(kind) {
            let managers = pointers(found, object)
                .filter(|&to| found.class(to).is_some_and(|class| class.name.contains("DeviceMgr")));
            for manager in managers {
                for to in pointers(found, manager) {
                    if is_device(found, to) {
                        devices.insert(to, scope);
                    } else if found.class(to).is_none() {
                        devices.extend(pointers(found, to).filter(|&at| is_device(found, at)).map(|at| (at, scope)));
                    }
                }
            }
        }
    }
    devices
}

/// What the words of an object lead to the beginning of.
fn pointers<'a, M: Memory>(found: &'a Found<'_, '_, M>, object: u64) -> impl Iterator<Item = u64> + 'a {
    let end = found.heap.segments.chunk(object).filter(|chunk| chunk.live).map_or(object, |chunk| chunk.data_end());
    let words = (object..end.min(object + MOST_WORDS * 8)).step_by(8).filter_map(|at| found.memory.word(at).ok());
    words.filter(move |&word| {
        word != object && found.heap.segments.chunk(word).is_some_and(|chunk| chunk.live && chunk.data() == word)
    })
}

fn is_device<M: Memory>(found: &Found<'_, '_, M>, object: u64) -> bool {
    found.class(object).is_some_and(|class| class.kind == Kind::Device)
}
