//! Names for the frames of Python code in stacks, read from the process as soon as the stack arrives: code objects are
//! freed as everything else is. What cannot be read any more is counted and stays without a name.

use rustc_hash::FxHashMap;
use tfmem_common::python::{code, is_code, parts};

use crate::{
    event::{Body, Event, PythonCode, PythonPlace, Stack},
    python::{Code, Layout, Memory as _, Remote},
};

/// A code object: process, address, and what tells it from another one that is there later.
type Object = (u32, u64, u32);

#[derive(Default)]
pub struct Names {
    objects: FxHashMap<Object, Result<Code, Unread>>,
    /// Numbers of instructions that came before. `None`: not shown.
    known: FxHashMap<(Object, i32), Option<u32>>,
    numbers: FxHashMap<PythonCode, u32>,
    /// Who a process was copied from: it often lives too short to be read.
    parents: FxHashMap<u32, u32>,
    /// Code objects that were no more what they had been, or could not be read at all.
    pub gone: u64,
    pub unreadable: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    Gone,
    Unreadable,
}

impl Names {
    /// The stack with each frame of Python's as the number of its place, and the places that are new. `None`: it has
    /// none.
    pub fn name(&mut self, at: u64, pid: u32, layout: Option<&Layout>, stack: &Stack) -> Option<(Stack, Vec<Event>)> {
        if !stack.frames.iter().any(|&word| is_code(word)) {
            return None;
        }
        let mut events = Vec::new();
        let mut frames = Vec::with_capacity(stack.frames.len());
        let mut words = stack.frames.iter();
        while let Some(&word) = words.next() {
            if !is_code(word) {
                frames.push(word);
                continue;
            }
            let (offset, identity) = parts(words.next().copied().unwrap_or(0));
            let object = (pid, word & !code(0), identity);
            frames.extend(self.number(at, object, offset, layout, &mut events).map(|number| code(u64::from(number))));
        }
        Some((Stack { frames, ..stack.clone() }, events))
    }

    fn number(
        &mut self,
        at: u64,
        object: Object,
        offset: i32,
        layout: Option<&Layout>,
        events: &mut Vec<Event>,
    ) -> Option<u32> {
        if let Some(known) = self.known.get(&(object, offset)) {
            return *known;
        }
        let place = self.place(object, offset, layout);
        let number = place.map(|place| {
            let next = self.numbers.len() as u32 + 1;
            *self.numbers.entry(place).or_insert_with_key(|place| {
                let place = PythonPlace { number: next, code: place.clone() };
                events.push(Event::of(at, 0, 0, Body::PythonPlace(place.into())));
                next
            })
        });
        self.known.insert((object, offset), number);
        number
    }

    /// `None`: no code of anybody's, but what the interpreter puts between an object's making and its `__init__`.
    fn place(&mut self, object: Object, offset: i32, layout: Option<&Layout>) -> Option<PythonCode> {
        if !self.objects.contains_key(&object) {
            let read = layout.ok_or(Unread::Unreadable).and_then(|layout| self.read(layout, object));
            self.gone += u64::from(matches!(read, Err(Unread::Gone)));
            self.unreadable += u64::from(matches!(read, Err(Unread::Unreadable)));
            self.objects.insert(object, read);
        }
        let (_, address, _) = object;
        Some(match self.objects.get(&object)? {
            Ok(code) if code.file == "__init__" && code.function == "__init__" => return None,
            Ok(code) => PythonCode::Known {
                file: code.file.clone(),
                function: code.function.clone(),
                line: code.line(u64::try_from(offset).ok()),
            },
            Err(Unread::Gone) => PythonCode::Gone { address },
            Err(Unread::Unreadable) => PythonCode::Unreadable { address },
        })
    }

    fn read(&self, layout: &Layout, object: Object) -> Result<Code, Unread> {
        let (pid, address, identity) = object;
        let of_parent = || {
            let object = (*self.parents.get(&pid)?, address, identity);
            let known = self.objects.get(&object).and_then(|read| read.as_ref().ok().cloned());
            known.or_else(|| read(layout, object).ok())
        };
        read(layout, object).or_else(|why| of_parent().ok_or(why))
    }

    pub fn forked(&mut self, parent: u32, child: u32) {
        self.parents.insert(child, parent);
    }

    /// The process ended or became another program.
    pub fn forget(&mut self, pid: u32) {
        self.parents.remove(&pid);
        self.objects.retain(|object, _| object.0 != pid);
        self.known.retain(|(object, _), _| object.0 != pid);
    }
}

/// Reads a code object, and makes sure that it was the one that is meant.
fn read(layout: &Layout, (pid, address, identity): Object) -> Result<Code, Unread> {
    let memory = Remote::open(pid).map_err(|_| Unread::Unreadable)?;
    let code = layout.code(&memory, address);
    match layout.identity_of(&memory, address) {
        // The texts it names may be gone before it.
        Ok(now) if now == identity => code.map_err(|_| Unread::Gone),
        Ok(_) => Err(Unread::Gone),
        // Its words lead nowhere: another object's are in their place.
        Err(_) if memory.word(address).is_ok() => Err(Unread::Gone),
        Err(_) => Err(Unread::Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use tfmem_common::python::at;

    use super::*;
    use crate::{event::StackId, python::Version};

    #[test]
    fn what_cannot_be_read_is_counted_once_and_said() {
        let mut names = Names::default();
        let layout = Layout::of(Version(3, 11)).unwrap();
        let frames = vec![1 << 48 | 0x10, code(0x1000), at(4, 7), code(0x1000), at(4, 7), 2 << 48 | 0x20];
        let stack = Stack { id: StackId::MIN, frames, end: 0 };
        let (named, events) = names.name(5, std::process::id(), Some(&layout), &stack).unwrap();
        assert_eq!(named.frames, [1 << 48 | 0x10, code(1), code(1), 2 << 48 | 0x20]);
        let told = PythonPlace { number: 1, code: PythonCode::Unreadable { address: 0x1000 } };
        assert_eq!(events, [Event::of(5, 0, 0, Body::PythonPlace(told.into()))]);
        assert_eq!((names.gone, names.unreadable), (0, 1));
        names.forget(std::process::id());
        assert!(names.objects.is_empty() && names.known.is_empty());
        // A child that is gone already has what its parent has.
        let code = Code::of("a.py", "f", 3);
        names.objects.insert((1, 0x2000, 7), Ok(code));
        names.forked(1, u32::MAX);
        let place = names.place((u32::MAX, 0x2000, 7), -1, Some(&layout));
        let known = PythonCode::Known { file: "a.py".to_owned(), function: "f".to_owned(), line: Some(3) };
        assert_eq!(place, Some(known));
        let native = Stack { frames: vec![1], ..stack };
        assert_eq!(names.name(5, 1, None, &native), None);
    }
}
