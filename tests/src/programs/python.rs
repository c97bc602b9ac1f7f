//! CPython: small objects, NumPy, pandas, DuckDB.

use super::data;
use crate::scenario::no_input;
use crate::{Line, Need, Place, Scenario, places};

/// What a bare `import numpy` or `import pandas` takes, off the size to aim at.
const NUMPY_BYTES: u64 = 12 << 20;
const DUCKDB_BYTES: u64 = 27 << 20;
const PANDAS_BYTES: u64 = 38 << 20;

/// A Python command line: fixed hash seed, and one thread in the numeric libraries' pools unless the scenario says so.
fn python(script: &str, arguments: &[String], threads: u32) -> Line {
    let mut words = vec![places::python().to_string_lossy().into_owned()];
    words.push(places::program(script).to_string_lossy().into_owned());
    words.extend_from_slice(arguments);
    Line::new(words)
        .with("PYTHONHASHSEED", "0")
        .with("PYTHONDONTWRITEBYTECODE", "1")
        .with("OPENBLAS_NUM_THREADS", threads.to_string())
}

/// Dictionaries, lists, tuples and strings.
pub const OBJECTS: Scenario = Scenario {
    name: "cpython-objects",
    about: "CPython dictionaries, lists, tuples and strings",
    needs: &[Need::Program("python3")],
    small_objects: true,
    prepare: no_input,
    command: |place| python("objects.py", &[(place.size_bytes / RECORD_BYTES).to_string()], 1),
    beside: None,
    outputs: &[],
};

/// One record of `objects.py` with everything that it holds.
const RECORD_BYTES: u64 = 730;

/// Matrix product.
pub const MATMUL: Scenario = Scenario {
    name: "numpy-matmul",
    about: "NumPy matrix product, two threads",
    needs: &[Need::Python("numpy")],
    small_objects: false,
    prepare: no_input,
    command: |place| python("arrays.py", &["matmul".into(), matrix_side(place).to_string()], 2),
    beside: None,
    outputs: &[],
};

/// Side of three square matrices of doubles that fill the place; a multiple of 16.
fn matrix_side(place: &Place) -> u64 {
    ((place.size_bytes.saturating_sub(NUMPY_BYTES) / 3 / 8).isqrt() / 16).max(1) * 16
}

/// Real transform and back.
pub const FFT: Scenario = Scenario {
    name: "numpy-fft",
    about: "NumPy FFT and its inverse",
    needs: &[Need::Python("numpy")],
    small_objects: false,
    prepare: no_input,
    command: |place| python("arrays.py", &["fft".into(), fft_points(place).to_string()], 1),
    beside: None,
    outputs: &[],
};

/// About five arrays of doubles live at once at the peak. The number is 5, 6, 7 or 8 times a power of two: a transform of
/// a length with large factors takes many times as long.
fn fft_points(place: &Place) -> u64 {
    let points = place.size_bytes.saturating_sub(NUMPY_BYTES) / 40;
    let unit = 1 << (points.ilog2() - 2);
    points / unit * unit
}

/// A file read into an array that is larger than the budget: the kernel writes into far memory.
pub const FROMFILE: Scenario = Scenario {
    name: "numpy-fromfile",
    about: "np.fromfile of an array larger than the budget, changed and written back",
    needs: &[Need::Python("numpy")],
    small_objects: false,
    prepare: |place| data::integers(&place.inputs.join("integers"), fromfile_bytes(place), 4),
    command: |place| python("arrays.py", &["fromfile".into(), place.input("integers")], 1),
    beside: None,
    outputs: &["changed.bin"],
};

/// The array is all there is, in whole rows of 512 integers.
fn fromfile_bytes(place: &Place) -> u64 {
    place.size_bytes.saturating_sub(NUMPY_BYTES) / 4096 * 4096
}

/// Group-by and join with pandas.
pub const PANDAS: Scenario = Scenario {
    name: "pandas",
    about: "pandas join, group-by and sort",
    needs: &[Need::Python("pandas")],
    small_objects: false,
    prepare: no_input,
    command: |place| python("frames.py", &["pandas".into(), pandas_rows(place).to_string()], 1),
    beside: None,
    outputs: &[],
};

/// Columns, join keys and the joined frame together, for one row.
fn pandas_rows(place: &Place) -> u64 {
    place.size_bytes.saturating_sub(PANDAS_BYTES) / 85
}

/// Group-by and join with DuckDB.
pub const DUCKDB: Scenario = Scenario {
    name: "duckdb",
    about: "DuckDB join, group-by and distinct in memory, two threads",
    needs: &[Need::Python("duckdb")],
    small_objects: false,
    prepare: no_input,
    command: |place| python("frames.py", &["duckdb".into(), duckdb_rows(place).to_string()], 1),
    beside: None,
    outputs: &[],
};

/// A row of the table with its share of the hash tables, and what `import duckdb` takes.
fn duckdb_rows(place: &Place) -> u64 {
    place.size_bytes.saturating_sub(DUCKDB_BYTES) / 73
}
