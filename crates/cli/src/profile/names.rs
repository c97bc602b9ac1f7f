//! Names for the frames of a profile, looked up as they are needed.

use super::file::{Call, Module};
use super::symbols::{Line, Named, Symbols};
use crate::encode::hexadecimal;
use hinterland_abi::profile::{Frame, MODULES_MAX, Profile};
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

/// Functions that give memory for others: their caller is who allocates. By the beginnings of their names.
const ALLOCATORS: &[&str] = &[
    "operator new",
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
    "mmap",
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "g_malloc",
    "g_realloc",
    "g_slice_alloc",
    "__rust_alloc",
    "__rust_realloc",
    "__rdl_",
    "__rustc::",
    // Containers of the standard libraries.
    "std::",
    "__gnu_cxx::",
    "alloc::",
    "core::",
    "hashbrown::",
    "<std::",
    "<alloc::",
    "<core::",
    "<hashbrown::",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "PyMem_",
    "_PyObject_",
    "_PyMem_",
    "npy_alloc",
    "default_malloc",
    "default_calloc",
    "PyDataMem_",
];

/// Whether a function gives memory for others.
pub fn is_allocator(function: &str) -> bool {
    let name = qualified(function);
    ALLOCATORS.iter().any(|allocator| name.starts_with(allocator))
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
            None => {
                Named { symbol: None, lines: vec![Line { function: "(code of no file)".into(), ..Line::default() }] }
            }
        };
        let named = Rc::new(named);
        self.named.insert(frame, Rc::clone(&named));
        named
    }

    /// A function by its module and name.
    pub fn function(&mut self, frame: Frame) -> (String, String) {
        (self.module_name(frame), self.name(frame).function().to_owned())
    }

    /// The functions that a frame's code was written in, the innermost first.
    pub fn calls(&mut self, frame: Frame) -> Vec<Call> {
        let module = self.module_name(frame);
        let named = self.name(frame);
        let call = |line: &Line| Call {
            function: line.function.clone(),
            module: module.clone(),
            file: (!line.file.is_empty()).then(|| line.file.clone()),
            line: (line.line != 0).then_some(line.line),
        };
        named.lines.iter().map(call).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_known_with_and_without_their_types() {
        for name in ["malloc", "operator new(unsigned long)", "void* std::allocator<int>::allocate(unsigned long)"] {
            assert!(is_allocator(name), "{name}");
        }
        let emplace =
            "std::_Rb_tree_iterator<std::pair<long const, int> > std::_Rb_tree<long, int>::_M_emplace<long>(long&&)";
        assert!(
            is_allocator(emplace)
                && is_allocator("int* std::fill_n<int*>(int*)")
                && is_allocator("alloc::vec::from_elem")
        );
        for name in [
            "my_pool_get",
            "main",
            "shapes::Grid<std::vector<int> >::Grid(std::size_t)",
            "int work<std::string>(std::string)",
        ] {
            assert!(!is_allocator(name), "{name}");
        }
    }
}
