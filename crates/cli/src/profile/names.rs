//! Names for the frames of a profile, looked up as they are needed.

use super::file::{Call, Module};
use super::symbols::{Line, Named, Symbols};
use crate::encode::hexadecimal;
use hinterland_abi::profile::{Frame, MODULES_MAX, Profile};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

/// Functions that allocate memory for their callers: the allocation is the caller's.
const ALLOCATORS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "strdup",
    "strndup",
    "wcsdup",
    "asprintf",
    "vasprintf",
    "mmap",
    "mmap64",
    "mremap",
    "xmalloc",
    "xcalloc",
    "xzalloc",
    "xrealloc",
    "xreallocarray",
    "xmallocarray",
    "xstrdup",
    "xstrndup",
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_try_malloc",
    "g_try_malloc0",
    "g_realloc",
    "g_realloc_n",
    "g_slice_alloc",
    "g_slice_alloc0",
    "g_strdup",
    "g_strndup",
    "g_memdup",
    "g_memdup2",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "default_malloc",
    "default_calloc",
    "default_realloc",
    "mi_malloc",
    "mi_zalloc",
    "mi_calloc",
    "mi_realloc",
    "tc_malloc",
    "tc_calloc",
    "tc_realloc",
    "tc_memalign",
];

/// The same by how their names begin: families, the insides of allocators, and the containers of the standard libraries.
const FAMILIES: &[&str] = &[
    "operator new",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__rust_alloc",
    "__rust_realloc",
    "__rdl_",
    "__rg_",
    "__rustc::",
    "std::",
    "__gnu_cxx::",
    "alloc::",
    "core::",
    "hashbrown::",
    "<std::",
    "<alloc::",
    "<core::",
    "<hashbrown::",
    "PyMem_",
    "_PyObject_",
    "_PyMem_",
    "npy_alloc",
    "PyDataMem_",
    // jemalloc, with the prefixes that its private names have alone and in Rust; mimalloc; tcmalloc.
    "je_",
    "_rjem_",
    "_mi_",
    "mi_heap_",
    "tc_new",
    "tcmalloc::",
];

/// Where the sources of the standard libraries lie: names of debug information that has lines alone do not say whose they are.
const LIBRARIES: &[&str] = &["/include/c++/", "/rustlib/src/rust/library/", "/rustc/"];

/// Whether a function gives memory for others.
pub fn is_allocator(call: &Call) -> bool {
    let name = qualified(&call.function);
    let plain = name.split(['(', '<']).next().unwrap_or(name);
    ALLOCATORS.contains(&plain)
        || FAMILIES.iter().any(|family| name.starts_with(family))
        || implements(name, &["alloc::", "hashbrown::"])
        || call.file.as_ref().is_some_and(|file| LIBRARIES.iter().any(|library| file.contains(library)))
}

/// Whether a function of Rust's is one of a trait of those crates, of whichever type: `<u64 as alloc::vec::…>::from_elem`.
fn implements(name: &str, crates: &[&str]) -> bool {
    let mut depth = 0;
    let at = name.char_indices().find(|(at, c)| {
        depth += i32::from(*c == '<') - i32::from(*c == '>');
        depth == 1 && name[*at..].starts_with(" as ")
    });
    let of = at.filter(|_| name.starts_with('<')).map(|(at, _)| &name[at + " as ".len()..]);
    of.is_some_and(|of| crates.iter().any(|one| of.starts_with(one)))
}

/// Of code that is in no file.
const NO_FILE: &str = "(code of no file)";

/// A function that its file has no name for: where it begins there.
pub fn unnamed(module: &str, start: u64) -> String {
    format!("{module}+{start:#x}")
}

/// Whether a function has a name, and not only a place, which is another one when its file is made anew.
pub fn has_name(function: &str, module: &str) -> bool {
    let place = function.strip_prefix(module).and_then(|rest| rest.strip_prefix("+0x"));
    let is_place =
        place.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    !is_place && !function.is_empty() && function != NO_FILE
}

/// A function's name without its result, which C++ writes before those of templates.
fn qualified(function: &str) -> &str {
    if let Some(at) = function.find("operator new") {
        return &function[at..];
    }
    let (mut depth, mut start) = (0, 0);
    for (at, c) in function.char_indices() {
        match c {
            '<' => depth += 1,
            // Not that of an arrow.
            '>' if !function[..at].ends_with('-') => depth -= 1,
            ' ' if depth == 0 => start = at + 1,
            '(' if depth == 0 => break,
            _ => {}
        }
    }
    &function[start..]
}

/// What tells functions apart: static ones of several sources may have one name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionKey {
    /// The file that it is in.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Its source file; empty: not known.
    pub file: String,
}

/// Names, looked up as they are needed.
pub struct Names<'a> {
    profile: &'a Profile,
    modules: Vec<Option<(Module, Symbols)>>,
    named: HashMap<Frame, Rc<Named>>,
}

impl<'a> Names<'a> {
    /// Those of a profile's frames.
    pub fn of(profile: &'a Profile) -> Names<'a> {
        let modules = std::iter::repeat_with(|| None).take(MODULES_MAX).collect();
        Names { profile, modules, named: HashMap::new() }
    }

    /// The files of the frames that were named.
    pub fn modules(self) -> Vec<Module> {
        self.modules.into_iter().flatten().map(|(module, _)| module).collect()
    }

    fn module(&mut self, index: usize) -> Option<&(Module, Symbols)> {
        let taken = self.profile.modules.get(index)?;
        let slot = self.modules.get_mut(index)?;
        Some(slot.get_or_insert_with(|| {
            let (path, id) = (taken.path.get(), taken.build_id());
            let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (symbols, unnamed_because) = match Symbols::read(Path::new(&path), &id) {
                Ok(symbols) => (symbols, None),
                Err(why) => (Symbols::default(), Some(why)),
            };
            (Module { name, path, build_id: hexadecimal(&id), unnamed_because }, symbols)
        }))
    }

    /// The name of the file that a frame is in.
    fn module_name(&mut self, frame: Frame) -> String {
        frame.module().and_then(|index| self.module(index)).map_or(String::new(), |(module, _)| module.name.clone())
    }

    /// What a frame is.
    pub fn name(&mut self, frame: Frame) -> Rc<Named> {
        if let Some(named) = self.named.get(&frame) {
            return Rc::clone(named);
        }
        let named = match frame.module().and_then(|index| self.module(index)) {
            Some((module, symbols)) => symbols.name(&module.name, frame.address()),
            None => Named { lines: vec![Line { function: NO_FILE.into(), ..Line::default() }], ..Named::default() },
        };
        let named = Rc::new(named);
        self.named.insert(frame, Rc::clone(&named));
        named
    }

    /// The function whose code a frame is.
    pub fn function(&mut self, frame: Frame) -> FunctionKey {
        let named = self.name(frame);
        let file = named.lines.last().map_or(String::new(), |line| line.file.clone());
        FunctionKey { module: self.module_name(frame), name: named.function().to_owned(), file }
    }

    /// The functions that a frame's code was written in, the innermost first.
    pub fn calls(&mut self, frame: Frame) -> Vec<Call> {
        let module = self.module_name(frame);
        let named = self.name(frame);
        let call = |line: &Line| Call {
            function: line.function.clone(),
            symbol: line.symbol.clone(),
            module: module.clone(),
            file: (!line.file.is_empty()).then(|| line.file.clone()),
            line: (line.line != 0).then_some(line.line),
            column: (line.line != 0 && line.column != 0).then_some(line.column),
            offset: named.offset.filter(|_| line.line == 0),
        };
        named.lines.iter().map(call).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allocator(function: &str) -> bool {
        super::is_allocator(&Call { function: function.into(), module: "app".into(), ..Call::default() })
    }

    #[test]
    fn allocators_are_known_with_and_without_their_types() {
        for name in [
            "malloc",
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::nothrow_t const&)",
            "void* std::allocator<int>::allocate(unsigned long)",
            "std::_Rb_tree_iterator<std::pair<long const, int> > std::_Rb_tree<long, int>::_M_emplace<long>(long&&)",
            "int* std::fill_n<int*>(int*)",
            "alloc::vec::from_elem",
            "<u64 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem::<A>",
            "__rust_alloc_zeroed",
            "je_arena_malloc_hard",
            "_rjem_je_extent_alloc_mmap",
            "xstrdup",
            "__libc_calloc",
        ] {
            assert!(is_allocator(name), "{name}");
        }
        for name in [
            "my_pool_get",
            "main",
            "malloc_words",
            "mmap_file(char const*)",
            "callocate",
            "strdup_all",
            "shapes::Grid<std::vector<int> >::Grid(std::size_t)",
            "int work<std::string>(std::string)",
            "<app::Rows as core::clone::Clone>::clone",
        ] {
            assert!(!is_allocator(name), "{name}");
        }
    }

    #[test]
    fn what_lies_in_a_standard_library_is_known_by_its_file_too() {
        let at = |file: &str| {
            let file = Some(file.to_owned());
            super::is_allocator(&Call { function: "allocate".into(), file, ..Call::default() })
        };
        assert!(at("/usr/include/c++/12/bits/new_allocator.h") && at("/rustc/59807616/library/alloc/src/alloc.rs"));
        assert!(!at("/work/app/allocate.cpp") && !is_allocator("allocate"));
    }

    #[test]
    fn a_place_is_no_name() {
        for (function, module) in
            [("app+0x401136", "app"), (NO_FILE, ""), ("", "app"), (&*unnamed("a+b.so", 16), "a+b.so")]
        {
            assert!(!has_name(function, module), "{function}");
        }
        for (function, module) in
            [("main", "app"), ("app", "app"), ("Big operator+0x(Big)", "app"), ("app+0x(int)", "app")]
        {
            assert!(has_name(function, module), "{function}");
        }
    }
}
