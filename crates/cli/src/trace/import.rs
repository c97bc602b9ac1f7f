//! Imports: makes traces from the recordings of other tools.

use super::Refusal;
use crate::error::complain;
use crate::output;
use clap::{Args, ValueEnum};
use hinterland_abi::parse_microset;
use hinterland_tape::import::ImportError;
use hinterland_tape::{Head, import};
use hinterland_units::PAGE_BYTES;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, stdin};
use std::path::{Path, PathBuf};

/// `hinterland trace import`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// What the file is
    #[arg(long, value_name = "FORMAT")]
    from: Format,
    /// The file; - is standard input
    input: PathBuf,
    /// Where the trace goes; what is there is replaced once the trace is whole
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Group into microsets of so many pages, as the tracer does. Default: 1, which leaves out nothing but touches of the
    /// same page in a row
    #[arg(long, value_name = "PAGES")]
    microset: Option<String>,
}

/// What can be imported.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// What `valgrind --tool=lackey --trace-mem=yes` prints: loads and stores, without instructions.
    Lackey,
    /// A page number on each line, or a thread and a page number; decimal, or hexadecimal after 0x.
    Text,
}

const EXAMPLES: &str = "\
Examples:
  valgrind --tool=lackey --trace-mem=yes --log-file=app.lackey ./app
  hinterland trace import --from lackey app.lackey -o app.trace
  seq 1 1000 | hinterland trace import --from text - -o walk.trace

Exit code: 0, or 125 when it refuses (the message names the line); nothing is written then.";

/// Imports.
pub fn run(args: &ImportArgs) -> Result<(), Refusal> {
    let microset_pages = args.microset.as_deref().map_or(Ok(1), parse_microset);
    let microset_pages = microset_pages.map_err(|why| Refusal::Words(format!("--microset: {why}")))?;
    let from_stdin = args.input == Path::new("-");
    if output::is_same(&args.output, if from_stdin { Path::new("/dev/stdin") } else { &args.input }) {
        return Err(Refusal::Own { flag: "--output", path: args.output.clone() });
    }
    let input: Box<dyn BufRead> = if from_stdin {
        Box::new(stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(&args.input).map_err(Refusal::io(&args.input))?))
    };
    let head = Head {
        origin: if args.from == Format::Lackey { "lackey" } else { "text" }.into(),
        page_bytes: u32::try_from(PAGE_BYTES).unwrap_or(0),
        microset_pages,
        ..Head::default()
    };
    let written = |source| Refusal::io(&args.output)(source);
    let imported = output::write(&args.output, written, |out| {
        let imported = match args.from {
            Format::Lackey => import::lackey(input, out, &head),
            Format::Text => import::text(input, out, &head),
        };
        imported.map_err(|error| match error {
            ImportError::Write(source) => written(source),
            source => Refusal::Import { path: args.input.clone(), source },
        })
    });
    let imported = match imported {
        // Whoever reads has seen enough.
        Err(Refusal::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => return Ok(()),
        imported => imported?,
    };
    complain(format_args!(
        "{}: {} references in {} microsets, from {} lines",
        args.output.display(),
        imported.references,
        imported.microsets,
        imported.lines
    ));
    Ok(())
}
