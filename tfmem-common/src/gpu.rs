//! The attach cookie of the two programs that serve every call of a GPU's driver: one at its entry, one at its return.
//!
//! ```text
//! bits  0..8    call number (the loader's catalogue gives it a meaning)
//! bits  8..12   1 + the argument that points to the first result, 0: none
//! bits 12..16   1 + the argument that points to the second one
//! bits 16..20   1 + the argument that points to a structure (or an array, or a result of another size)
//! bits 20..24   how many words of the structure are sent
//! bits 24..32   how many words of it are left out first
//! bits 32..36   what the call does to the contexts of its thread, see [`Effect`]
//! bit  36       nothing is sent: only the effect counts
//! bit  37       true from the call's entry on (memory that is given back may be another thread's before it returns)
//! bit  38       comes often
//! ```

/// What a call does to the stack of contexts that each thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    /// The uppermost one becomes the first argument; a null one takes it off.
    Set,
    /// The first argument comes on top.
    Push,
    Pop,
    /// The first result comes on top.
    PushNew,
    /// The first argument goes, if it is on top.
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    pub call: u8,
    /// Arguments that point to results.
    pub results: [Option<u8>; 2],
    pub structure: Option<Structure>,
    pub effect: Effect,
    pub quiet: bool,
    pub from_entry: bool,
    pub frequent: bool,
}

/// A structure that an argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure {
    pub argument: u8,
    /// Words left out, and words sent.
    pub from: u8,
    pub words: u8,
}

/// Words of a structure that travel at most.
pub const WORDS: usize = 5;

const fn argument(raw: u64, shift: u32) -> Option<u8> {
    match (raw >> shift) as u8 & 0xf {
        0 => None,
        n => Some(n - 1),
    }
}

const fn packed(argument: Option<u8>) -> u64 {
    match argument {
        Some(n) => n as u64 + 1,
        None => 0,
    }
}

impl Cookie {
    #[must_use]
    pub const fn pack(self) -> u64 {
        let [first, second] = self.results;
        let (structure, words, from) = match self.structure {
            Some(s) => (Some(s.argument), s.words, s.from),
            None => (None, 0, 0),
        };
        self.call as u64
            | packed(first) << 8
            | packed(second) << 12
            | packed(structure) << 16
            | (words as u64) << 20
            | (from as u64) << 24
            | (self.effect as u64) << 32
            | (self.quiet as u64) << 36
            | (self.from_entry as u64) << 37
            | (self.frequent as u64) << 38
    }

    #[inline(always)]
    #[must_use]
    pub const fn unpack(raw: u64) -> Self {
        let structure = match argument(raw, 16) {
            Some(argument) => Some(Structure { argument, from: (raw >> 24) as u8, words: (raw >> 20) as u8 & 0xf }),
            None => None,
        };
        let effect = match (raw >> 32) & 0xf {
            1 => Effect::Set,
            2 => Effect::Push,
            3 => Effect::Pop,
            4 => Effect::PushNew,
            5 => Effect::Drop,
            _ => Effect::None,
        };
        Self {
            call: raw as u8,
            results: [argument(raw, 8), argument(raw, 12)],
            structure,
            effect,
            quiet: raw >> 36 & 1 != 0,
            from_entry: raw >> 37 & 1 != 0,
            frequent: raw >> 38 & 1 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_and_unpack_agree() {
        let effects = [Effect::None, Effect::Set, Effect::Push, Effect::Pop, Effect::PushNew, Effect::Drop];
        let structures = [None, Some(Structure { argument: 4, from: 11, words: 4 })];
        for (i, effect) in effects.into_iter().enumerate() {
            for structure in structures {
                let cookie = Cookie {
                    call: 200,
                    results: [Some(0), (i % 2 == 0).then_some(5)],
                    structure,
                    effect,
                    quiet: i % 2 == 0,
                    from_entry: i % 3 == 0,
                    frequent: i % 2 == 1,
                };
                assert_eq!(Cookie::unpack(cookie.pack()), cookie);
            }
        }
    }
}
