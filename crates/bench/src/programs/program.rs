//! The programs: most are the maintained ones of the end-to-end tests (`tests/src/programs`), whose `programs` command makes their inputs
//! and says their command lines.

use super::ProgramsArgs;
use super::redis::Client;
use crate::error::BenchError;
use serde::Deserialize;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// Name of a file in the working directory.
const STDOUT: &str = "stdout.txt";
/// As [`STDOUT`].
pub const STDERR: &str = "stderr.txt";
const SQL: &str = include_str!("../../../../benches/programs/orders.sql");
/// A row of `orders.sql` with its share of index and tables, at the peak.
const SQL_ROW_BYTES: u64 = 238;
const FOREST: &str = include_str!("../../../../benches/programs/forest.py");

/// A program that can be measured.
#[derive(Debug)]
pub struct Named {
    /// In the command line and the report.
    pub name: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Of the end-to-end tests, with variables of its own.
    Maintained(&'static str, &'static [(&'static str, &'static str)]),
    /// `sqlite3 :memory:` with `orders.sql`.
    Sqlite,
    /// scikit-learn.
    Forest,
    /// redis-server under a client that asks for so many keys at a time.
    Redis(u32),
}

/// All of them, in the order of the report.
pub static ALL: &[Named] = &[
    Named { name: "sqlite", kind: Kind::Sqlite },
    Named { name: "g++", kind: Kind::Maintained("gcc", &[]) },
    Named { name: "java", kind: Kind::Maintained("java", &[]) },
    Named { name: "dictionaries", kind: Kind::Maintained("cpython-objects", &[]) },
    Named { name: "pandas", kind: Kind::Maintained("pandas", &[]) },
    Named { name: "matmul", kind: Kind::Maintained("numpy-matmul", &[("OPENBLAS_NUM_THREADS", "1")]) },
    Named { name: "matmul-2", kind: Kind::Maintained("numpy-matmul", &[("OPENBLAS_NUM_THREADS", "2")]) },
    Named { name: "fft", kind: Kind::Maintained("numpy-fft", &[]) },
    Named { name: "sort", kind: Kind::Maintained("sort", &[]) },
    Named { name: "duckdb", kind: Kind::Maintained("duckdb", &[]) },
    Named { name: "redis", kind: Kind::Redis(1) },
    Named { name: "redis-piped", kind: Kind::Redis(32) },
    Named { name: "forest", kind: Kind::Forest },
    Named { name: "zstd", kind: Kind::Maintained("zstd", &[]) },
];

impl Named {
    /// The program of that name.
    ///
    /// # Errors
    /// There is none; the message lists them.
    pub fn parse(name: &str) -> Result<&'static Named, String> {
        let names = || ALL.iter().map(|named| named.name).collect::<Vec<_>>().join(", ");
        ALL.iter().find(|named| named.name == name).ok_or_else(|| format!("no program '{name}': {}", names()))
    }

    /// Makes its inputs, in `directory` unless they are a test's.
    ///
    /// # Errors
    /// Why the machine cannot run it.
    pub fn prepare(&'static self, args: &ProgramsArgs, directory: &Path) -> Result<Program, String> {
        let written = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).map(|()| path).map_err(|error| format!("cannot write {name}: {error}"))
        };
        let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let line = match &self.kind {
            Kind::Maintained(name, environment) => maintained(args, name, environment)?,
            Kind::Sqlite => {
                installed("sqlite3")?;
                let sql = written("orders.sql", &SQL.replace("{rows}", &(args.size.0 / SQL_ROW_BYTES).to_string()))?;
                Line::of(words(&["sqlite3", "-batch", ":memory:", &format!(".read '{}'", sql.display())]))
            }
            Kind::Forest => {
                let python = absolute(&args.python)?;
                let has = Command::new(&python).args(["-c", "import sklearn"]).stderr(Stdio::null()).status();
                if !has.is_ok_and(|status| status.success()) {
                    return Err(format!("{python} has no scikit-learn; name one that has it with --python"));
                }
                let script = written("forest.py", FOREST)?.to_string_lossy().into_owned();
                Line::of(words(&[&python, &script, &(args.size.0 >> 20).to_string()]))
            }
            Kind::Redis(_) => {
                installed("redis-server")?;
                let mut line = words(&["redis-server", "--port", "0", "--unixsocket", "server.sock", "--dir", "."]);
                line.extend(words(&["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]));
                Line::of(line)
            }
        };
        let client = match self.kind {
            Kind::Redis(batch) => Some(Client::new(args.size.0, batch)),
            _ => None,
        };
        Ok(Program { name: self.name, line, client })
    }
}

/// Asks the tests' `programs` for the command line of one of theirs.
fn maintained(args: &ProgramsArgs, name: &str, environment: &[(&str, &str)]) -> Result<Line, String> {
    let mut command = Command::new(&args.programs);
    command.args(["line", name, "--size", &(args.size.0 >> 20).to_string()]);
    let said = command.output().map_err(|error| format!("cannot start {}: {error}", args.programs.display()))?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).trim().to_owned());
    }
    let mut line: Line = serde_json::from_slice(&said.stdout).map_err(|error| format!("{name}: {error}"))?;
    line.environment.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Ok(line)
}

/// A program that a run in another directory finds: a name is looked for in `PATH`, a path is one from here.
fn absolute(program: &Path) -> Result<String, String> {
    if program.components().count() == 1 {
        return Ok(program.to_string_lossy().into_owned());
    }
    let path = std::path::absolute(program).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

fn installed(program: &str) -> Result<(), String> {
    let has = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    has.map(drop).map_err(|_| format!("{program} is not installed (./dev setup)"))
}

/// A command line, as `programs line` writes it.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    words: Vec<String>,
    environment: HashMap<String, String>,
    /// Files that it writes into its working directory, besides its standard output.
    outputs: Vec<String>,
}

impl Line {
    fn of(words: Vec<String>) -> Line {
        Line { words, environment: HashMap::new(), outputs: Vec::new() }
    }
}

/// A program with its inputs.
pub struct Program {
    /// In the report.
    pub name: &'static str,
    line: Line,
    /// Of a server.
    pub client: Option<Client>,
}

impl Program {
    /// A command line, with the environment of this process.
    pub fn of(words: Vec<String>) -> Program {
        Program {
            name: "command",
            line: Line { environment: std::env::vars().collect(), ..Line::of(words) },
            client: None,
        }
    }

    /// The command behind the words of `launcher`, in `directory`. Its environment is the same in every run.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn command(&self, launcher: &[String], directory: &Path) -> Result<Command, BenchError> {
        let words: Vec<&String> = launcher.iter().chain(&self.line.words).collect();
        let file = |name: &str| {
            let path = directory.join(name);
            File::create(&path).map_err(BenchError::io("write", &path))
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(directory).stdin(Stdio::null());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", directory).env("LC_ALL", "C.UTF-8").env("TZ", "UTC").envs(&self.line.environment);
        command.stdout(file(STDOUT)?).stderr(file(STDERR)?);
        Ok(command)
    }

    /// A digest of what the run in `directory` wrote. A server's own output is none; what its client saw is `seen`.
    ///
    /// # Errors
    /// An output is missing.
    pub fn digest(&self, directory: &Path, seen: &str) -> Result<u64, String> {
        let mut hash = DefaultHasher::new();
        hash.write(seen.as_bytes());
        let stdout = self.client.is_none().then_some(STDOUT);
        for name in stdout.into_iter().chain(self.line.outputs.iter().map(String::as_str)) {
            let mut file = File::open(directory.join(name)).map_err(|error| format!("no output {name}: {error}"))?;
            let mut block = vec![0; 1 << 20];
            loop {
                match file.read(&mut block).map_err(|error| format!("{name}: {error}"))? {
                    0 => break,
                    bytes => hash.write(&block[..bytes]),
                }
            }
            hash.write_u8(0);
        }
        Ok(hash.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        assert!(ALL.iter().all(|named| std::ptr::eq(Named::parse(named.name).unwrap(), named)));
        assert!(Named::parse("tetris").unwrap_err().contains("matmul-2"));
    }

    #[test]
    fn a_path_is_one_from_here_and_a_name_is_none() {
        assert_eq!(absolute(Path::new("python3")).unwrap(), "python3");
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new(".venv/bin/python")).unwrap(), here.join(".venv/bin/python").to_string_lossy());
        assert_eq!(absolute(Path::new("/usr/bin/python3")).unwrap(), "/usr/bin/python3");
    }

    #[test]
    fn the_digest_is_of_all_outputs() {
        let directory = tempfile::tempdir().unwrap();
        let line = Line { outputs: vec!["sorted".into()], ..Line::of(vec!["sort".into()]) };
        let program = Program { name: "sort", line, client: None };
        let digest = |stdout: &str, sorted: &str, seen: &str| {
            std::fs::write(directory.path().join(STDOUT), stdout).unwrap();
            std::fs::write(directory.path().join("sorted"), sorted).unwrap();
            program.digest(directory.path(), seen).unwrap()
        };
        let first = digest("out", "a\nb\n", "");
        assert_eq!(digest("out", "a\nb\n", ""), first);
        assert_ne!(digest("out", "a\nc\n", ""), first);
        assert_ne!(digest("outa\nb\n", "", ""), first);
        assert_ne!(digest("out", "a\nb\n", "17 found"), first);
        std::fs::remove_file(directory.path().join("sorted")).unwrap();
        assert!(program.digest(directory.path(), "").unwrap_err().contains("no output sorted"));
    }
}
