//! `hinterland man` and `hinterland completions`: what packages install beside the command, made from the real command line.

use crate::args::Cli;
use crate::error::{EXIT_REFUSED, complain};
use crate::print;
use clap::{Args, CommandFactory, ValueEnum};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `hinterland man`.
#[derive(Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManArgs {
    /// Where the pages go; it is made where it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// `hinterland completions`.
#[derive(Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Shells whose completions are made.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

const MAN_EXAMPLES: &str = "\
Examples:
  hinterland man /usr/local/share/man/man1
  hinterland man /tmp/man && man -l /tmp/man/hinterland-run.1

Exit code: 0, or 125 when the pages cannot be written.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(hinterland completions bash)
  mkdir -p ~/.local/share/bash-completion/completions
  hinterland completions bash > ~/.local/share/bash-completion/completions/hinterland
  hinterland completions zsh > \"${fpath[1]}/_hinterland\"
  hinterland completions fish > ~/.config/fish/completions/hinterland.fish

Exit code: 0, or 125 when standard output cannot be written.";

/// Writes a page for the command and for each subcommand.
pub fn man(args: &ManArgs) -> ExitCode {
    if fs::metadata(&args.directory).is_ok_and(|there| !there.is_dir()) {
        complain(format_args!(
            "{}: this is no folder, and the pages are files in one; name a folder, which is made where it does not exist",
            args.directory.display()
        ));
        return ExitCode::from(EXIT_REFUSED);
    }
    ended(&args.directory, pages(&args.directory))
}

fn pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)
}

/// Writes a shell's completions to standard output.
pub fn completions(args: &CompletionsArgs) -> ExitCode {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hinterland", &mut script);
    ended(Path::new("stdout"), print::as_is(&String::from_utf8_lossy(&script)).map(drop))
}

fn ended(place: &Path, outcome: io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("{}: {error}", place.display()));
            ExitCode::from(EXIT_REFUSED)
        }
    }
}
