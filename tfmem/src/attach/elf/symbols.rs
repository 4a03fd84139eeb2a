//! Symbols by name: through the hash table where there is one, else by one pass over the table.

use object::LittleEndian as LE;
use object::elf::{self, SectionHeader64, Sym64};
use object::{U32, U64};
use serde::{Deserialize, Serialize};

use super::{Elf, ElfError, Range, Result, pods};

/// Bytes read at a time when a table is walked.
const WINDOW: u64 = 1 << 20;
/// No symbol of the catalogue is longer; a name that does not end within this is no match.
const LONGEST_NAME: u64 = 1024;
/// A symbol table larger than this is damaged (libtensorflow_cc's full one has 30 MB).
pub(super) const MAX_SYMBOLS: u64 = 256 << 20;
/// Steps in one hash chain. Real chains have about one entry; a damaged table could be a circle.
const LONGEST_CHAIN: u32 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Table {
    /// `.dynsym`
    Dynamic,
    /// `.symtab`: also has local and hidden symbols, where it was not stripped
    Full,
}

/// A symbol that is defined in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub table: Table,
    pub index: u32,
    /// Address (functions) or offset in the thread's block (thread-local variables).
    pub value: u64,
    pub size: u64,
    pub thread_local: bool,
    pub function: bool,
}

/// A symbol found by [`Elf::scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub name: String,
    pub symbol: Symbol,
}

impl Symbol {
    fn new(table: Table, index: u32, raw: &Sym64<LE>) -> Option<Self> {
        let function = raw.st_type() == elf::STT_FUNC;
        let thread_local = raw.st_type() == elf::STT_TLS;
        let defined = !matches!(raw.st_shndx.get(LE), elf::SHN_UNDEF | elf::SHN_ABS);
        (defined && (function || thread_local)).then(|| Self {
            table,
            index,
            value: raw.st_value.get(LE),
            size: raw.st_size.get(LE),
            thread_local,
            function,
        })
    }
}

/// Gets a symbol's name, number and record.
type Visit<'a> = &'a mut dyn FnMut(&[u8], u32, &Sym64<LE>);

/// A symbol table and its strings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables {
    pub symbols: Range,
    pub strings: Range,
}

impl Elf {
    /// Can dynamic symbols be looked up, or does each look-up walk the whole table?
    #[must_use]
    pub fn has_hash(&self) -> bool {
        self.dynamic.is_none_or(|d| d.gnu_hash.is_some() || d.sysv_hash.is_some())
    }

    /// A dynamic symbol by its exact name: a few reads with a hash table, a walk over the table without.
    pub fn lookup(&self, name: &str) -> Result<Option<Symbol>> {
        let Some(dynamic) = self.dynamic else { return Ok(None) };
        if let Some(at) = dynamic.gnu_hash {
            return self.lookup_gnu(at, name);
        }
        if let Some(at) = dynamic.sysv_hash {
            return self.lookup_sysv(at, name);
        }
        Ok(self.scan(Table::Dynamic, &|n| n == name.as_bytes())?.pop().map(|hit| hit.symbol))
    }

    /// The symbol at `index`, if its name is `name`.
    pub fn symbol_at(&self, table: Table, index: u32, name: &str) -> Result<Option<Symbol>> {
        let Some(tables) = self.tables(table)? else { return Ok(None) };
        self.check(tables, table, index, name)
    }

    fn check(&self, tables: Tables, table: Table, index: u32, name: &str) -> Result<Option<Symbol>> {
        let raw: Sym64<LE> = self.value(tables.symbols, u64::from(index))?;
        let Some(symbol) = Symbol::new(table, index, &raw) else { return Ok(None) };
        let start = u64::from(raw.st_name.get(LE));
        let size = name.len() as u64 + 1;
        if start.checked_add(size).is_none_or(|end| end > tables.strings.size) {
            return Ok(None);
        }
        let bytes = self.bytes(tables.strings.offset + start, size)?;
        let same = bytes.strip_suffix(&[0]) == Some(name.as_bytes());
        Ok(same.then_some(symbol))
    }

    /// `DT_GNU_HASH`: header, Bloom filter, buckets, chains (<https://flapenguin.me/elf-dt-gnu-hash>, glibc's
    /// `elf/dl-lookup.c`).
    fn lookup_gnu(&self, at: u64, name: &str) -> Result<Option<Symbol>> {
        let Some(table) = self.gnu_hash(at)? else { return Ok(None) };
        let hash = elf::gnu_hash(name.as_bytes());
        let word: U64<LE> = self.value(table.bloom, u64::from(hash / 64) % table.bloom_words)?;
        let mask = 1_u64 << (hash % 64) | 1_u64.wrapping_shl((hash >> table.bloom_shift) % 64);
        if word.get(LE) & mask != mask {
            return Ok(None);
        }
        let Some(tables) = self.tables(Table::Dynamic)? else { return Ok(None) };
        let bucket: U32<LE> = self.value(table.buckets, u64::from(hash) % table.bucket_count)?;
        let mut index = bucket.get(LE);
        if index < table.first {
            return Ok(None);
        }
        for _ in 0..LONGEST_CHAIN {
            let link: U32<LE> = self.value(table.chains, u64::from(index - table.first))?;
            if link.get(LE) | 1 == hash | 1
                && let Some(symbol) = self.check(tables, Table::Dynamic, index, name)?
            {
                return Ok(Some(symbol));
            }
            if link.get(LE) & 1 != 0 {
                return Ok(None);
            }
            index = index.checked_add(1).ok_or(ElfError::Damaged("an endless hash chain"))?;
        }
        Err(ElfError::Damaged("an endless hash chain"))
    }

    fn gnu_hash(&self, at: u64) -> Result<Option<GnuHash>> {
        let header = self.table_at(at, 16)?;
        let words: [U32<LE>; 4] = self.value(header, 0)?;
        let [bucket_count, first, bloom_words, bloom_shift] = words.map(|w| w.get(LE));
        if bucket_count == 0 || bloom_words == 0 {
            return Ok(None);
        }
        let bloom = self.table_at(at.wrapping_add(16), u64::from(bloom_words) * 8)?;
        let buckets_at = at.wrapping_add(16 + u64::from(bloom_words) * 8);
        let buckets = self.table_at(buckets_at, u64::from(bucket_count) * 4)?;
        let chains_at = buckets_at.wrapping_add(u64::from(bucket_count) * 4);
        // The table does not say how many symbols it covers: the chains end somewhere before the segment does.
        let (offset, left) = self.locate(chains_at).ok_or(ElfError::Damaged("hash chains outside the file"))?;
        let chains = Range { offset, size: left };
        Ok(Some(GnuHash {
            bloom,
            buckets,
            chains,
            first,
            bloom_words: u64::from(bloom_words),
            bucket_count: u64::from(bucket_count),
            bloom_shift: bloom_shift % 32,
        }))
    }

    /// `DT_HASH`: bucket count, chain count (which is the number of symbols), buckets, chains (System V ABI, chapter 5).
    fn lookup_sysv(&self, at: u64, name: &str) -> Result<Option<Symbol>> {
        let Some(tables) = self.tables(Table::Dynamic)? else { return Ok(None) };
        let [bucket_count, count] = self.sysv_counts(at)?;
        if bucket_count == 0 {
            return Ok(None);
        }
        let words = self.table_at(at, 8 + (u64::from(bucket_count) + u64::from(count)) * 4)?;
        let hash = elf::hash(name.as_bytes());
        let bucket: U32<LE> = self.value(words, 2 + u64::from(hash % bucket_count))?;
        let mut index = bucket.get(LE);
        for _ in 0..LONGEST_CHAIN {
            if index == 0 {
                return Ok(None);
            }
            if let Some(symbol) = self.check(tables, Table::Dynamic, index, name)? {
                return Ok(Some(symbol));
            }
            let next: U32<LE> = self.value(words, 2 + u64::from(bucket_count) + u64::from(index))?;
            index = next.get(LE);
        }
        Err(ElfError::Damaged("an endless hash chain"))
    }

    fn sysv_counts(&self, at: u64) -> Result<[u32; 2]> {
        let words: [U32<LE>; 2] = self.value(self.table_at(at, 8)?, 0)?;
        Ok(words.map(|w| w.get(LE)))
    }

    /// Has the file such a table at all?
    pub(super) fn has_table(&self, table: Table) -> Result<bool> {
        Ok(self.tables(table)?.is_some())
    }

    pub(super) fn tables(&self, table: Table) -> Result<Option<Tables>> {
        match table {
            Table::Dynamic => self.dynamic_tables(),
            Table::Full => self.section_tables(elf::SHT_SYMTAB),
        }
    }

    fn dynamic_tables(&self) -> Result<Option<Tables>> {
        let Some(dynamic) = self.dynamic else { return Ok(None) };
        let (Some(symtab), Some(strtab)) = (dynamic.symtab, dynamic.strtab) else { return Ok(None) };
        let strings = self.table_at(strtab, dynamic.strtab_size)?;
        let (offset, left) = self.locate(symtab).ok_or(ElfError::Damaged("symbols outside the file"))?;
        // The dynamic section does not say how many symbols there are, but another of its tables follows theirs (the
        // versions of the symbols in the wheels, their names as GNU ld orders them).
        let end = [Some(strtab), dynamic.gnu_hash, dynamic.sysv_hash, dynamic.rela, dynamic.plt_rela]
            .into_iter()
            .chain(dynamic.versions)
            .flatten()
            .filter(|&at| at > symtab)
            .map(|at| at - symtab)
            .fold(left, u64::min);
        Ok(Some(Tables { symbols: self.range(offset, end)?, strings }))
    }

    fn section_tables(&self, kind: elf::SectionType) -> Result<Option<Tables>> {
        let Some(sections) = self.sections else { return Ok(None) };
        let bytes = self.bytes(sections.offset, sections.size)?;
        let headers = pods::<SectionHeader64<LE>>(&bytes)?;
        let Some(symtab) = headers.iter().find(|s| s.sh_type.get(LE) == kind) else { return Ok(None) };
        let strtab = headers
            .get(symtab.sh_link.get(LE) as usize)
            .filter(|s| s.sh_type.get(LE) == elf::SHT_STRTAB)
            .ok_or(ElfError::Damaged("symbols without strings"))?;
        Ok(Some(Tables {
            symbols: self.range(symtab.sh_offset.get(LE), symtab.sh_size.get(LE))?,
            strings: self.range(strtab.sh_offset.get(LE), strtab.sh_size.get(LE))?,
        }))
    }

    /// Is one of `names` imported, that is: named by an undefined dynamic symbol?
    pub fn imports(&self, names: &[&str]) -> Result<bool> {
        let mut found = false;
        self.walk(Table::Dynamic, &|raw| raw.st_shndx.get(LE) == elf::SHN_UNDEF, &mut |name, _, _| {
            found |= names.iter().any(|n| n.as_bytes() == name);
        })?;
        Ok(found)
    }

    /// All defined functions whose name `wanted` accepts, in one pass.
    pub fn scan(&self, table: Table, wanted: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Hit>> {
        let keep = |raw: &Sym64<LE>| raw.st_type() == elf::STT_FUNC && raw.st_shndx.get(LE) != elf::SHN_UNDEF;
        self.collect(table, &keep, wanted)
    }

    /// The same for thread-local variables.
    pub fn scan_thread_locals(&self, table: Table, wanted: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Hit>> {
        let keep = |raw: &Sym64<LE>| raw.st_type() == elf::STT_TLS && raw.st_shndx.get(LE) != elf::SHN_UNDEF;
        self.collect(table, &keep, wanted)
    }

    fn collect(
        &self,
        table: Table,
        keep: &dyn Fn(&Sym64<LE>) -> bool,
        wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<Hit>> {
        let mut found = Vec::new();
        self.walk(table, keep, &mut |name, index, raw| {
            if wanted(name)
                && let Some(symbol) = Symbol::new(table, index, raw)
                && let Ok(name) = std::str::from_utf8(name)
            {
                found.push(Hit { name: name.to_owned(), symbol });
            }
        })?;
        Ok(found)
    }

    /// Hands the name of every symbol that `keep` accepts to `visit`.
    ///
    /// The symbols are sorted by the place of their name first, so that the string table (up to 175 MB) is read once,
    /// forwards, in small windows.
    fn walk(&self, table: Table, keep: &dyn Fn(&Sym64<LE>) -> bool, visit: Visit<'_>) -> Result<()> {
        let Some(tables) = self.tables(table)? else { return Ok(()) };
        if tables.symbols.size > MAX_SYMBOLS {
            return Err(ElfError::Damaged("an absurdly large symbol table"));
        }
        let size = size_of::<Sym64<LE>>() as u64;
        let count = tables.symbols.size / size;
        let step = WINDOW / size;
        let mut names: Vec<(u32, u32)> = Vec::new();
        for first in (0..count).step_by(step as usize) {
            let bytes = self.bytes(tables.symbols.offset + first * size, step.min(count - first) * size)?;
            for (raw, index) in pods::<Sym64<LE>>(&bytes)?.iter().zip(first..) {
                let (name, Ok(index)) = (raw.st_name.get(LE), u32::try_from(index)) else { break };
                if name != 0 && u64::from(name) < tables.strings.size && keep(raw) {
                    names.push((name, index));
                }
            }
        }
        names.sort_unstable();

        let mut window: Vec<u8> = Vec::new();
        let mut start = 0_u64;
        for &(name, index) in &names {
            let at = u64::from(name);
            let needed = (at + LONGEST_NAME).min(tables.strings.size);
            if at < start || needed > start + window.len() as u64 {
                start = at;
                let size = WINDOW.min(tables.strings.size - start);
                window.resize(size as usize, 0);
                self.read_into(tables.strings.offset + start, &mut window)?;
            }
            let from = (at - start) as usize;
            let to = (needed - start) as usize;
            let Some(end) = window.get(from..to).and_then(|part| part.iter().position(|&b| b == 0)) else { continue };
            if let Some(bytes) = window.get(from..from + end) {
                let raw = self.value(tables.symbols, u64::from(index))?;
                visit(bytes, index, &raw);
            }
        }
        Ok(())
    }
}

struct GnuHash {
    bloom: Range,
    buckets: Range,
    chains: Range,
    first: u32,
    bloom_words: u64,
    bucket_count: u64,
    bloom_shift: u32,
}
