//! Just enough of BTF to find where a structure's member is.
//!
//! A general parser builds every type and name of the kernel (150,000 types) before the first question; here one pass
//! notes where each type starts, and only the structures asked for are read.
//!
//! Format: <https://docs.kernel.org/bpf/btf.html>, `include/uapi/linux/btf.h`.

const MAGIC: u16 = 0xeb9f;
/// `struct btf_type`: name, info, size or type.
const TYPE_SIZE: usize = 12;
/// Anonymous unions in anonymous structures in …
const DEEPEST: u32 = 8;

mod kind {
    pub const INT: u32 = 1;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where type number n+1 starts (0 is `void`, which is not written down).
    starts: Vec<u32>,
}

/// One `struct btf_type`.
#[derive(Clone, Copy)]
struct Type {
    start: usize,
    name: u32,
    kind: u32,
    members: usize,
    /// The members' offsets hold a bit field's size in their upper byte.
    packed: bool,
    target: u32,
}

impl<'a> Btf<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        // struct btf_header: magic u16, version u8, flags u8, hdr_len u32, type_off, type_len, str_off, str_len
        if u16_at(bytes, 0) != Some(MAGIC) {
            return Err("not BTF of this machine's byte order");
        }
        if bytes.get(2) != Some(&1) {
            return Err("an unknown version of BTF");
        }
        let field = |at| u32_at(bytes, at).map(|v| v as usize).ok_or("cut short");
        let (header, type_off, type_len, str_off, str_len) = (field(4)?, field(8)?, field(12)?, field(16)?, field(20)?);
        let section = |off: usize, len: usize| {
            let start = header.checked_add(off).ok_or("damaged")?;
            bytes.get(start..start.checked_add(len).ok_or("damaged")?).ok_or("cut short")
        };
        let mut this =
            Self { types: section(type_off, type_len)?, strings: section(str_off, str_len)?, starts: Vec::new() };
        let mut at = 0;
        while at < this.types.len() {
            let found = this.read(at).ok_or("cut short")?;
            this.starts.push(u32::try_from(at).map_err(|_| "too large")?);
            let (fixed, each) = match found.kind {
                kind::INT | kind::VAR | kind::DECL_TAG => (4, 0),
                kind::ARRAY => (12, 0),
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => (0, 12),
                kind::ENUM | kind::FUNC_PROTO => (0, 8),
                0 | 20.. => return Err("has a kind of type that is not known here"),
                _ => (0, 0),
            };
            at += TYPE_SIZE + fixed + each * found.members;
        }
        Ok(this)
    }

    /// Byte offset of a structure's member; members of anonymous parts count as the structure's own.
    pub fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        self.starts.iter().find_map(|&start| {
            let found = self.read(start as usize)?;
            let named = found.kind == kind::STRUCT && self.name(found.name) == Some(structure.as_bytes());
            if named { self.member(found, member.as_bytes(), 0) } else { None }
        })
    }

    fn member(&self, structure: Type, wanted: &[u8], depth: u32) -> Option<u32> {
        if depth > DEEPEST {
            return None;
        }
        (0..structure.members).find_map(|index| {
            // struct btf_member: name, type, offset in bits
            let at = structure.start + TYPE_SIZE + index * 12;
            let (name, target, raw) =
                (u32_at(self.types, at)?, u32_at(self.types, at + 4)?, u32_at(self.types, at + 8)?);
            let bits = if structure.packed { raw & 0x00ff_ffff } else { raw };
            if self.name(name)? == wanted {
                // A bit field has no byte offset to give.
                return (bits % 8 == 0).then_some(bits / 8);
            }
            if name != 0 {
                return None;
            }
            let inner = self.unqualified(target)?;
            let composite = matches!(inner.kind, kind::STRUCT | kind::UNION);
            let offset = if composite { self.member(inner, wanted, depth + 1)? } else { return None };
            (bits / 8).checked_add(offset)
        })
    }

    /// The type behind `const`, `volatile` and tags.
    fn unqualified(&self, mut id: u32) -> Option<Type> {
        for _ in 0..DEEPEST {
            let start = *self.starts.get((id as usize).checked_sub(1)?)?;
            let found = self.read(start as usize)?;
            if !matches!(found.kind, kind::CONST | kind::VOLATILE | kind::TYPE_TAG) {
                return Some(found);
            }
            id = found.target;
        }
        None
    }

    fn read(&self, start: usize) -> Option<Type> {
        let info = u32_at(self.types, start + 4)?;
        Some(Type {
            start,
            name: u32_at(self.types, start)?,
            kind: (info >> 24) & 0x1f,
            members: (info & 0xffff) as usize,
            packed: info >> 31 != 0,
            target: u32_at(self.types, start + 8)?,
        })
    }

    fn name(&self, at: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(at as usize..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        rest.get(..end)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_ne_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop")]
mod tests {
    use super::*;

    /// `struct file { int a; const union { int x; struct { int y; long f_inode; }; }; }` by hand.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0file\0a\0x\0y\0f_inode\0";
        let at = |name: &str| {
            strings.windows(name.len() + 1).position(|w| w == [name.as_bytes(), b"\0"].concat()).unwrap() as u32
        };
        let mut types: Vec<u32> = Vec::new();
        let mut add = |words: &[u32]| types.extend(words);
        add(&[at("int"), kind::INT << 24, 4, 32]); // 1
        add(&[0, kind::STRUCT << 24 | 2, 16, at("y"), 1, 0, at("f_inode"), 1, 64]); // 2
        add(&[0, 1 << 31 | kind::UNION << 24 | 2, 16, at("x"), 1, 0, 0, 2, 0]); // 3
        add(&[0, kind::CONST << 24, 3]); // 4
        add(&[at("file"), kind::STRUCT << 24 | 2, 24, at("a"), 1, 0, 0, 4, 64]); // 5
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_of_anonymous_parts_are_found() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.offset("file", "a"), Some(0));
        assert_eq!(btf.offset("file", "x"), Some(8));
        assert_eq!(btf.offset("file", "f_inode"), Some(16));
        assert_eq!(btf.offset("file", "nothing"), None);
        assert_eq!(btf.offset("nothing", "a"), None);
    }

    #[test]
    fn damaged_btf_is_an_error_or_an_absence() {
        let good = sample();
        for len in 0..good.len() {
            if let Ok(btf) = Btf::parse(&good[..len]) {
                btf.offset("file", "f_inode");
            }
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Ok(btf) = Btf::parse(&bad) {
                    btf.offset("file", "f_inode");
                }
            }
        }
    }
}
