//! The attach cookie: how one BPF program serves every rare TensorFlow call.
//!
//! ```text
//! bits  0..16   call number (the loader's catalogue gives it a meaning)
//! bits 16..24   how to read a text argument, see [`Text`]
//! bits 24..32   which argument holds the text (0-based)
//! bit  32       wake the loader at once: it must look at the process now
//! bits 40..56   offset of the text in what the argument points to
//! ```
//!
//! The probe on the short form of `AddTraceMe` has a cookie of its own, see [`PoolLayout`].
//!
//! Minimum kernel: 5.15 (`bpf_get_attach_cookie` in uprobe programs).

/// How a text argument is laid out in the traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    None,
    /// `const char*`
    CStr(u8),
    /// `const std::string&`, libstdc++'s layout: pointer, length
    StdString(u8),
    /// A `std::string` that is a field of the object the argument points to: argument, offset of the field
    StdStringAt(u8, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    pub call: u16,
    pub text: Text,
    /// The loader must look at the process as soon as this call happens.
    pub wake: bool,
}

const TEXT_CSTR: u64 = 1;
const TEXT_STD_STRING: u64 = 2;
const TEXT_STD_STRING_AT: u64 = 3;

impl Cookie {
    #[must_use]
    pub const fn pack(self) -> u64 {
        let (mode, arg, offset) = match self.text {
            Text::None => (0, 0, 0),
            Text::CStr(n) => (TEXT_CSTR, n, 0),
            Text::StdString(n) => (TEXT_STD_STRING, n, 0),
            Text::StdStringAt(n, offset) => (TEXT_STD_STRING_AT, n, offset),
        };
        self.call as u64 | mode << 16 | (arg as u64) << 24 | (self.wake as u64) << 32 | (offset as u64) << 40
    }

    /// An unknown text mode reads as [`Text::None`]: the call is still counted, its text is not.
    #[inline(always)]
    #[must_use]
    pub const fn unpack(raw: u64) -> Self {
        let arg = (raw >> 24) as u8;
        let text = match (raw >> 16) & 0xff {
            TEXT_CSTR => Text::CStr(arg),
            TEXT_STD_STRING => Text::StdString(arg),
            TEXT_STD_STRING_AT => Text::StdStringAt(arg, (raw >> 40) as u16),
            _ => Text::None,
        };
        Self { call: raw as u16, text, wake: raw >> 32 & 1 != 0 }
    }
}

/// Where a pool (`BFCAllocator`) keeps its regions and its chunks: offsets of the two vectors, read from the library's
/// code by the loader.
///
/// ```text
/// bits  0..32   `region_manager_.regions_`
/// bits 32..64   `chunks_`
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLayout {
    pub regions: u32,
    pub chunks: u32,
}

impl PoolLayout {
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.regions as u64 | (self.chunks as u64) << 32
    }

    #[inline(always)]
    #[must_use]
    pub const fn unpack(raw: u64) -> Self {
        Self { regions: raw as u32, chunks: (raw >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_and_unpack_agree() {
        for text in [Text::None, Text::CStr(3), Text::StdString(5), Text::StdStringAt(4, 0xfedc)] {
            for wake in [false, true] {
                let cookie = Cookie { call: 0xabcd, text, wake };
                assert_eq!(Cookie::unpack(cookie.pack()), cookie);
            }
        }
    }

    #[test]
    fn a_pool_layout_survives() {
        let layout = PoolLayout { regions: 0x570, chunks: 0x588 };
        assert_eq!(PoolLayout::unpack(layout.pack()), layout);
    }
}
