//! Names for addresses: from debug information (in the file, or in one of its own beside it or below /usr/lib/debug), else from the tables of
//! symbols, else from the bounds of functions that `.eh_frame` knows.

use super::names::unnamed;
use crate::encode::hexadecimal;
use addr2line::Loader;
use addr2line::gimli::{self, BaseAddresses, CieOrFde, EhFrame, NativeEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::fs;
use std::path::{Path, PathBuf};

/// A function, and where in its source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// The function's name, as its language writes it.
    pub function: String,
    /// As the linker would have it, where that is another name and known.
    pub symbol: Option<String>,
    /// The source file; empty: not known.
    pub file: String,
    /// The line there; 0: not known.
    pub line: u32,
    /// The column there; 0: not known.
    pub column: u32,
}

/// What an address is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Named {
    /// The function whose code it is, as the linker has it; `None`: its file has no name for it.
    pub symbol: Option<String>,
    /// The functions that it was written in, the innermost first: those that the compiler has put into each other, and last the one whose
    /// code it is. At least one.
    pub lines: Vec<Line>,
    /// How far behind the beginning of the function whose code it is, where that is known.
    pub offset: Option<u64>,
}

impl Named {
    /// The name of the function whose code it is.
    pub fn function(&self) -> &str {
        self.lines.last().map_or("", |line| &line.function)
    }
}

/// A function's bounds and name.
struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

/// The names of one file.
#[derive(Default)]
pub struct Symbols {
    /// With debug information.
    loader: Option<Loader>,
    /// By address.
    symbols: Vec<Symbol>,
    /// Bounds of all functions, by address.
    bounds: Vec<(u64, u64)>,
}

impl Symbols {
    /// Reads a file; `build_id`: of the file that ran. `Err`: why it has no names, in words.
    pub fn read(path: &Path, build_id: &[u8]) -> Result<Symbols, String> {
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        let file = object::File::parse(&*bytes).map_err(|error| error.to_string())?;
        let there = file.build_id().ok().flatten().unwrap_or_default();
        if !build_id.is_empty() && !there.starts_with(build_id) {
            return Err("it is another file than the one that ran".into());
        }
        let mut symbols = symbols_of(&file);
        let mut loader = has_lines(&file).then(|| Loader::new(path).ok()).flatten();
        if loader.is_none()
            && let Some((debug_path, debug)) = debug_file(path, &file, there)
            && let Ok(debug) = object::File::parse(&*debug)
        {
            symbols.extend(symbols_of(&debug));
            loader = Loader::new(debug_path).ok();
        }
        symbols.sort_by(|a, b| (a.start, b.end).cmp(&(b.start, a.end)));
        symbols.dedup_by_key(|symbol| symbol.start);
        Ok(Symbols { loader, symbols, bounds: bounds_of(&file).unwrap_or_default() })
    }

    /// What an address in the file is; `module`: the file's name.
    pub fn name(&self, module: &str, address: u64) -> Named {
        let symbol = self.symbol_at(address);
        let mut lines = self.lines_at(address);
        if lines.is_empty() {
            lines.push(Line::default());
        }
        // A name in debug information that is the linker's is whole.
        if let Some(own) = lines.last_mut().filter(|own| own.symbol.is_none()) {
            own.symbol = symbol.map(|symbol| symbol.name.clone()).filter(|name| is_mangled(name));
            match symbol {
                // Line tables alone have the name without what it is in, or none.
                Some(symbol) if own.function.is_empty() || is_mangled(&symbol.name) => {
                    own.function = demangled(&symbol.name);
                }
                None if own.function.is_empty() => own.function = self.unnamed(module, address),
                _ => {}
            }
        }
        let start = symbol.map(|symbol| symbol.start).or_else(|| self.start(address));
        Named { symbol: symbol.map(|symbol| symbol.name.clone()), lines, offset: start.map(|start| address - start) }
    }

    /// The name of a function that has none: its file and where it begins there.
    fn unnamed(&self, module: &str, address: u64) -> String {
        unnamed(module, self.start(address).unwrap_or(address))
    }

    /// Where the function begins that `.eh_frame` has there.
    fn start(&self, address: u64) -> Option<u64> {
        let after = self.bounds.partition_point(|(start, _)| *start <= address);
        let bounds = after.checked_sub(1).map(|index| self.bounds[index]);
        bounds.filter(|(_, end)| address < *end).map(|(start, _)| start)
    }

    fn symbol_at(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        after.checked_sub(1).map(|index| &self.symbols[index]).filter(|symbol| address < symbol.end)
    }

    fn lines_at(&self, address: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        let Some(mut frames) = self.loader.as_ref().and_then(|loader| loader.find_frames(address).ok()) else {
            return lines;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.and_then(|name| {
                let raw = without_clone(&name.raw_name().ok()?).to_owned();
                let function = addr2line::demangle_auto(raw.as_str().into(), name.language).into_owned();
                Some((raw, function))
            });
            if name.is_none() && frame.location.is_none() {
                continue;
            }
            let (raw, function) = name.unwrap_or_default();
            let (file, line, column) =
                frame.location.map_or((None, None, None), |location| (location.file, location.line, location.column));
            let symbol = is_mangled(&raw).then_some(raw);
            let file = file.unwrap_or_default().to_owned();
            lines.push(Line { function, symbol, file, line: line.unwrap_or(0), column: column.unwrap_or(0) });
        }
        lines
    }
}

/// Whether a name is of C++ or Rust, as the linker has it.
fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// What compilers put behind the names of parts and copies that they make of functions: GCC, LLVM, and Hinterland's plugin.
const CLONES: &[&str] = &[".cold", ".constprop.", ".isra.", ".part.", ".lto_priv.", ".llvm.", ".hint.gather"];

/// The name of the function that a part or copy was made of.
fn without_clone(name: &str) -> &str {
    let end = CLONES.iter().filter_map(|clone| name.find(clone)).filter(|at| *at > 0).min();
    &name[..end.unwrap_or(name.len())]
}

/// A linker's name as its language writes it.
fn demangled(name: &str) -> String {
    addr2line::demangle_auto(name.into(), None).into_owned()
}

/// The functions that a file has names for. One without a length reaches to the next.
fn symbols_of(file: &object::File<'_>) -> Vec<Symbol> {
    let functions = file.symbols().chain(file.dynamic_symbols());
    let mut symbols: Vec<Symbol> = functions
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .filter_map(|symbol| {
            let (start, name) = (symbol.address(), symbol.name().ok()?);
            // Versions, as `memcpy@@GLIBC_2.14`, are no part of it.
            let name = without_clone(name.split('@').next().unwrap_or(name)).to_owned();
            Some(Symbol { start, end: start + symbol.size(), name })
        })
        .collect();
    symbols.sort_by_key(|symbol| symbol.start);
    for index in 1..symbols.len() {
        let next = symbols[index].start;
        let before = &mut symbols[index - 1];
        if before.end == before.start {
            before.end = next;
        }
    }
    symbols
}

fn has_lines(file: &object::File<'_>) -> bool {
    let section = file.section_by_name(".debug_info").or_else(|| file.section_by_name(".debug_line"));
    section.is_some_and(|section| section.size() > 0 && section.data().is_ok_and(|data| !data.is_empty()))
}

/// The debug information of a file, as debuggers look for it (gdb's manual, "Debugging Information in Separate Files").
fn debug_file(path: &Path, file: &object::File<'_>, build_id: &[u8]) -> Option<(PathBuf, Vec<u8>)> {
    let root = Path::new("/usr/lib/debug");
    let by_id = build_id
        .split_first()
        .map(|(first, rest)| root.join(format!(".build-id/{first:02x}/{}.debug", hexadecimal(rest))));
    let link = file.gnu_debuglink().ok().flatten().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
    let home = path.parent().unwrap_or(Path::new("/"));
    let by_link = link.into_iter().flat_map(|name| {
        let below = root.join(home.strip_prefix("/").unwrap_or(home)).join(&name);
        [home.join(&name), home.join(".debug").join(&name), below]
    });
    by_id.into_iter().chain(by_link).filter(|candidate| candidate != path).find_map(|candidate| {
        let bytes = fs::read(&candidate).ok()?;
        let debug = object::File::parse(&*bytes).ok()?;
        // An older file of the same name tells wrong lines.
        let fits = debug.build_id().ok().flatten().unwrap_or_default() == build_id;
        (fits && has_lines(&debug)).then_some(())?;
        Some((candidate, bytes))
    })
}

/// The bounds of a file's functions.
fn bounds_of(file: &object::File<'_>) -> Option<Vec<(u64, u64)>> {
    let section = file.section_by_name(".eh_frame")?;
    let data = section.data().ok()?;
    let address_of = |name: &str| file.section_by_name(name).map_or(0, |section| section.address());
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(address_of(".text"));
    let frames = EhFrame::new(data, NativeEndian);
    let mut bounds = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(function) = partial.parse(gimli::EhFrame::cie_from_offset)
        {
            bounds.push((function.initial_address(), function.initial_address() + function.len()));
        }
    }
    bounds.sort_unstable();
    Some(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somewhere to be.
    #[inline(never)]
    fn marked() -> u32 {
        std::hint::black_box(line!())
    }

    fn own_address() -> (PathBuf, u64) {
        let program = std::env::current_exe().unwrap();
        let bytes = fs::read(&program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let symbol =
            file.symbols().find(|symbol| symbol.name().is_ok_and(|name| name.contains("symbols5tests6marked")));
        (program, symbol.expect("there is one").address())
    }

    #[test]
    fn a_function_has_its_name_file_and_line() {
        let (program, address) = own_address();
        let symbols = Symbols::read(&program, &[]).unwrap();
        let named = symbols.name("tests", address + 1);
        assert!(named.function().ends_with("symbols::tests::marked"), "{named:?}");
        assert!(named.symbol.is_some_and(|symbol| symbol.starts_with("_")));
        let last = named.lines.last().unwrap();
        assert!(last.file.ends_with("profile/symbols.rs") && last.line.abs_diff(marked()) <= 2, "{last:?}");
    }

    #[test]
    fn what_a_compiler_made_of_a_function_is_that_function() {
        for (name, function) in [
            ("_Z4walkPi.cold", "_Z4walkPi"),
            ("sum.constprop.0.isra.0", "sum"),
            ("sum.part.1.cold", "sum"),
            ("_RNvC3app4walk.llvm.123", "_RNvC3app4walk"),
            ("_ZL7look_upPKj.hint.gather.2", "_ZL7look_upPKj"),
            ("_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE", ""),
            (".cold", ""),
        ] {
            assert_eq!(without_clone(name), if function.is_empty() { name } else { function });
        }
    }

    #[test]
    fn without_names_a_function_is_where_it_begins() {
        let (program, address) = own_address();
        let mut symbols = Symbols::read(&program, &[]).unwrap();
        (symbols.loader, symbols.symbols) = (None, Vec::new());
        let named = symbols.name("tests", address + 1);
        assert_eq!((named.symbol, named.lines.len()), (None, 1));
        assert_eq!(named.lines[0].function, format!("tests+{address:#x}"));
    }

    #[test]
    fn another_file_than_the_one_that_ran_gives_no_names() {
        let (program, _) = own_address();
        assert!(Symbols::read(&program, &[1, 2, 3]).is_err_and(|why| why.contains("another file")));
        assert!(Symbols::read(Path::new("/nowhere"), &[]).is_err());
        assert!(Symbols::read(Path::new("/proc/self/maps"), &[]).is_err());
    }
}
