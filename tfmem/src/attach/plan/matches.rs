//! Which symbols of a file serve which entries of the catalogue.

use crate::attach::elf::{Elf, Hit, Result, Symbol, Table};
use crate::attach::plan::Missing;
use crate::catalogue::{ENTRIES, Entry, Family, Pattern, Program, Several, Spelling};

/// A symbol that serves an entry.
#[derive(Clone, Debug)]
pub struct Match {
    pub spelling: &'static Spelling,
    pub name: String,
    pub symbol: Symbol,
}

pub struct Found {
    /// One list for each entry, in the catalogue's order.
    pub hits: Vec<Vec<Match>>,
    pub missing: Vec<Missing>,
}

/// Looks for all entries, the cheap ways first: exact names through the hash table; then one pass over the dynamic
/// symbols for names known only by their start; then one pass over the full symbol table, where hidden functions and
/// those of static programs are.
pub fn find(elf: &Elf) -> Result<Found> {
    let mut hits: Vec<Vec<Match>> = ENTRIES.iter().map(|_| Vec::new()).collect();
    if !elf.has_hash() {
        let all: Vec<usize> = (0..ENTRIES.len()).collect();
        let exact = |name: &[u8]| ENTRIES.iter().any(|e| has_exact(e, name));
        assign(elf.scan(Table::Dynamic, &exact)?, &all, &mut hits);
    }
    for (entry, found) in ENTRIES.iter().zip(&mut hits).filter(|_| elf.has_hash()) {
        for spelling in entry.spellings {
            if let Pattern::Exact(name) = spelling.pattern
                && let Some(symbol) = elf.lookup(name)?.filter(|s| s.function)
            {
                found.push(Match { spelling, name: name.to_owned(), symbol });
            }
        }
    }
    let families = families(&hits);
    let mut unserved = Vec::new();
    if !families.is_empty() {
        let open = open_entries(&hits, &families, has_prefix);
        let wanted = |name: &[u8]| open.iter().any(|&i| ENTRIES.get(i).is_some_and(|e| knows(e, name)));
        if !open.is_empty() {
            unserved = assign(elf.scan(Table::Dynamic, &wanted)?, &open, &mut hits);
        }
    }
    let nothing = hits.iter().all(Vec::is_empty);
    let hidden = open_entries(&hits, &families, |entry| entry.landmark);
    if (nothing && elf.is_executable()) || !hidden.is_empty() {
        let open: Vec<usize> = if nothing { (0..ENTRIES.len()).collect() } else { hidden };
        let wanted = |name: &[u8]| open.iter().any(|&i| ENTRIES.get(i).is_some_and(|e| knows(e, name)));
        unserved.extend(assign(elf.scan(Table::Full, &wanted)?, &open, &mut hits));
    }
    let families = self::families(&hits);

    let mut missing = Vec::new();
    for ((index, entry), found) in ENTRIES.iter().enumerate().zip(&mut hits) {
        choose(entry, found);
        let wraps = found.iter().all(|m| !entry.wrapper_of.contains(&m.name.as_str()));
        if !found.is_empty() && wraps && !entry.wrapper_of.is_empty() && elf.imports(entry.wrapper_of)? {
            found.clear();
            let reason = "only a wrapper here; the function itself is in another library".to_owned();
            missing.push(Missing { entry: entry.name.to_owned(), reason });
        } else if found.is_empty() && families.contains(&entry.family) && !is_alternative(entry) {
            let reason = unserved.iter().find(|(i, _)| *i == index).map_or_else(|| unknown(entry), |(_, r)| r.clone());
            missing.push(Missing { entry: entry.name.to_owned(), reason });
        }
    }
    Ok(Found { hits, missing })
}

/// Of the functions that report chunks no file needs all: what is missing is said once, under the first one's name.
fn is_alternative(entry: &Entry) -> bool {
    entry.program.reports_chunks() && entry.program != Program::Chunk
}

fn unknown(entry: &Entry) -> String {
    let mut known: Vec<&str> = entry.spellings.iter().map(|s| s.known_in).collect();
    known.dedup();
    format!("no such symbol; known in {}", known.join("; "))
}

/// Families whose landmarks are there.
fn families(hits: &[Vec<Match>]) -> Vec<Family> {
    [Family::Framework, Family::Cc]
        .into_iter()
        .filter(|&family| ENTRIES.iter().zip(hits).any(|(e, h)| e.landmark && e.family == family && !h.is_empty()))
        .collect()
}

/// Entries without a match whose family is here.
fn open_entries(hits: &[Vec<Match>], families: &[Family], which: impl Fn(&Entry) -> bool) -> Vec<usize> {
    let open =
        |(entry, found): (&Entry, &Vec<Match>)| found.is_empty() && families.contains(&entry.family) && which(entry);
    ENTRIES.iter().zip(hits).enumerate().filter(|&(_, pair)| open(pair)).map(|(index, _)| index).collect()
}

fn has_exact(entry: &Entry, name: &[u8]) -> bool {
    entry.spellings.iter().any(|s| matches!(s.pattern, Pattern::Exact(exact) if exact.as_bytes() == name))
}

fn has_prefix(entry: &Entry) -> bool {
    let patterns = entry.spellings.iter().map(|s| s.pattern).chain(entry.unserved.iter().map(|u| u.pattern));
    patterns.into_iter().any(|pattern| matches!(pattern, Pattern::Prefix(_)))
}

fn knows(entry: &Entry, name: &[u8]) -> bool {
    entry.spellings.iter().any(|s| fits(s.pattern, name)) || entry.unserved.iter().any(|u| fits(u.pattern, name))
}

fn fits(pattern: Pattern, name: &[u8]) -> bool {
    match pattern {
        Pattern::Exact(exact) => exact.as_bytes() == name,
        // A dot starts what the compiler appends to parts of a function (`.cold`, `.part.0`): not its entry.
        Pattern::Prefix(prefix) => name.starts_with(prefix.as_bytes()) && !name.contains(&b'.'),
    }
}

/// Puts found symbols to their entries; returns what was found but cannot be served.
fn assign(found: Vec<Hit>, open: &[usize], hits: &mut [Vec<Match>]) -> Vec<(usize, String)> {
    let mut unserved = Vec::new();
    for hit in found {
        for &index in open {
            let (Some(entry), Some(list)) = (ENTRIES.get(index), hits.get_mut(index)) else { continue };
            if let Some(spelling) = entry.spellings.iter().find(|s| fits(s.pattern, hit.name.as_bytes())) {
                list.push(Match { spelling, name: hit.name.clone(), symbol: hit.symbol });
            } else if let Some(other) = entry.unserved.iter().find(|u| fits(u.pattern, hit.name.as_bytes())) {
                unserved.push((index, other.why.to_owned()));
            }
        }
    }
    unserved
}

/// Leaves those matches that get a probe.
fn choose(entry: &Entry, found: &mut Vec<Match>) {
    // In the catalogue's order, whatever way they were found.
    let rank = |m: &Match| entry.spellings.iter().position(|s| std::ptr::eq(s, m.spelling)).unwrap_or(usize::MAX);
    found.sort_by_key(|m| (rank(m), m.symbol.value));
    let mut addresses = Vec::new();
    found.retain(|m| {
        let new = !addresses.contains(&m.symbol.value);
        addresses.push(m.symbol.value);
        new
    });
    match entry.several {
        Several::Each => {}
        Several::First => found.truncate(1),
        Several::Variants => {
            // A deleting destructor is some ten instructions around a call of the complete one; a variant half as
            // large as the largest holds the work itself, inlined.
            let largest = found.iter().map(|m| m.symbol.size).max().unwrap_or(0);
            found.retain(|m| m.symbol.size >= largest / 2);
        }
    }
}
