//! The programs, by kind.

mod compilers;
mod compressors;
mod data;
mod databases;
mod languages;
mod python;
mod servers;
mod sorting;

use crate::Scenario;

/// Every program that must run under Hinterland as it runs natively.
pub const ALL: &[Scenario] = &[
    sorting::SORT,
    compressors::XZ,
    compressors::ZSTD,
    compilers::NODES,
    compilers::GCC,
    python::OBJECTS,
    python::MATMUL,
    python::FFT,
    python::FROMFILE,
    python::PANDAS,
    python::DUCKDB,
    databases::SQLITE,
    servers::REDIS,
    servers::MEMCACHED,
    languages::JAVA,
    languages::NODE,
];

/// The program of that name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = super::ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), super::ALL.len());
        assert!(names.iter().all(|name| super::named(name).is_some()));
    }
}
