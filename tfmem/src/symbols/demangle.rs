//! Names as a person wrote them. Mangled ones come from the traced program's files: the result is bounded, whatever
//! they say.

use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions};

/// Bytes of a name. C++ templates of a few hundred bytes can become gigabytes.
const LONGEST: usize = 1024;

/// A name of C++ without parameters, of Rust without its hash; any other as it is.
#[must_use]
pub fn demangle(name: &str) -> String {
    let mut out = Bounded::default();
    if name.starts_with("_Z") && cpp(name, &mut out) || rust(name, &mut out) {
        return out.finish();
    }
    let mut out = Bounded::default();
    let _ = Write::write_str(&mut out, name);
    out.finish()
}

fn cpp(name: &str, out: &mut Bounded) -> bool {
    if rustc_demangle::try_demangle(name).is_ok() {
        // Rust's older names are a kind of C++ names.
        return false;
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let Ok((symbol, _)) = BorrowedSymbol::with_tail(name.as_bytes()) else { return false };
    // Ends early when it is full; what came until then is the name's beginning.
    symbol.structured_demangle(out, &options).is_ok() || out.full
}

fn rust(name: &str, out: &mut Bounded) -> bool {
    rustc_demangle::try_demangle(name).is_ok_and(|symbol| write!(out, "{symbol:#}").is_ok() || out.full)
}

#[derive(Default)]
struct Bounded {
    text: String,
    full: bool,
}

impl Bounded {
    fn finish(mut self) -> String {
        if self.full {
            self.text.push('…');
        }
        self.text.shrink_to_fit();
        self.text
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST.saturating_sub(self.text.len());
        let fits = text.floor_char_boundary(room);
        self.text.push_str(text.get(..fits).unwrap_or_default());
        self.full |= fits < text.len();
        if self.full { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_were_written() {
        for (mangled, name) in [
            ("_ZN3tsl12BFCAllocator11AllocateRawEmm", "tsl::BFCAllocator::AllocateRaw"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("malloc", "malloc"),
            ("_Znonsense", "_Znonsense"),
            ("", ""),
        ] {
            assert_eq!(demangle(mangled), name);
        }
    }

    #[test]
    fn a_name_that_explodes_is_cut() {
        // Each level doubles what it stands for.
        let mut name = "_Z1fI1aE".to_owned();
        name.push_str("St4pairI");
        for level in 0..60 {
            name.push_str(&format!("St4pairIS{level}_S{level}_E"));
        }
        assert!(demangle(&name).len() <= LONGEST + 3);
        assert!(demangle(&"x".repeat(100_000)).len() <= LONGEST + 3);
        assert!(demangle(&format!("_Z{}x", "N".repeat(50_000))).len() <= LONGEST + 3);
    }
}
