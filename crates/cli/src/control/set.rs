//! `hinterland set`: changes a run that is under way.

use super::client::{Launcher, LauncherError};
use super::message::{Change, Request, WAIT_MS_MAX};
use super::process;
use crate::config::from_here;
use crate::error::{EXIT_REFUSED, complain};
use crate::print;
use crate::report::{bytes, count};
use clap::Args;
use hinterland_abi::{Setting, variables};
use hinterland_units::{Foreign, whole_number};
use std::process::ExitCode;
use std::time::Duration;

/// Exit code when the change is commanded, and not all processes have made it in time.
const EXIT_BEHIND: u8 = 1;

/// `hinterland set`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SetArgs {
    /// The run: its launcher's PID, as `hinterland ps` lists it, or that of any process in it
    #[arg(value_name = "PID", value_parser = process)]
    pid: i32,
    #[command(flatten)]
    what: Changes,
    /// How long to wait until all processes have made the change, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = whole_number::<u64>(..=WAIT_MS_MAX / 1000, "--wait 60"))]
    wait: u64,
}

/// What is changed: one of these at least.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Changes {
    /// Local memory for all processes of the run together, as `hinterland run --local` takes it: a size (768M), or a share of the RAM
    /// (25%ram)
    #[arg(long, value_name = "SIZE")]
    local: Option<String>,
    /// RAM for local pages, the compressed store and tables of all processes together, as `hinterland run --ram` takes it
    #[arg(long, value_name = "SIZE")]
    ram: Option<String>,
    #[arg(long, value_name = "N|auto", help = of_run(variables::CPUS))]
    cpus: Option<String>,
    #[arg(long, value_name = "GRANULARITY", help = of_run(variables::GRANULARITY))]
    granularity: Option<String>,
    #[arg(long, value_name = "SIZE|auto", help = of_run(variables::BLOCK))]
    block: Option<String>,
    /// One more path to far memory, as `hinterland run --far` takes it; may be repeated
    #[arg(long, value_name = "URL")]
    add_far: Vec<String>,
    /// A path to far memory whose pages go to the others, and that is closed then; may be repeated
    #[arg(long, value_name = "URL")]
    drop_far: Vec<String>,
}

/// What `run` says of a setting, but for its default: what is not changed stays as it is.
fn of_run(variable: &str) -> String {
    Setting::of(variable).map_or_else(String::new, Setting::meaning)
}

const EXAMPLES: &str = "\
Examples:
  hinterland set 4711 --local 768M
  hinterland set 4711 --local 2G --wait 60
  hinterland set 4711 --ram 3G
  hinterland set 4711 --cpus 1
  hinterland set 4711 --block 64K
  hinterland set 4711 --add-far tcp://c:7440 --drop-far 'file:/mnt/ssd?size=64G' --wait 300

A smaller budget takes pages out at once; with a larger one, fewer leave from now on. Where pages \
have nowhere to go, a smaller --ram ends no program: the run keeps what it needs, and set says so. A path \
that is dropped gives its pages to the others first, while the program goes on; one that cannot be opened keeps those that were to go. The change holds for processes \
that the run starts later, too, and when the launcher is gone.

Exit code: 0 when all processes have made the change; 1 when it holds and some have not made it yet (listed); 125 when it is refused.";

/// Changes a run.
pub fn run(args: &SetArgs) -> ExitCode {
    match change(args) {
        Ok(change) if change.behind_count == 0 => {
            let local =
                args.what.local.as_ref().map(|_| {
                    format!("keep the local budget of {}{}", bytes(change.local_budget_bytes), ceiling(&change))
                });
            let ram = args.what.ram.as_ref().and(change.ram_budget_bytes);
            let ram = ram.map(|ram| format!("keep the RAM budget of {}", bytes(ram)));
            let cpus = args.what.cpus.as_deref().map(|cpus| match cpus {
                "auto" => "let the pager's own threads run on all processors".to_owned(),
                "1" => "keep the pager's own threads to 1 processor".to_owned(),
                cpus => format!("keep the pager's own threads to {} processors", Foreign(cpus)),
            });
            let blocks = args.what.granularity.is_some() || args.what.block.is_some();
            let size = change.block_bytes.map_or(String::new(), |size| format!(" ({})", bytes(size)));
            let blocks = blocks.then(|| format!("have the new granularity and block size{size}"));
            let has_paths = !args.what.add_far.is_empty() || !args.what.drop_far.is_empty();
            let paths = has_paths.then(|| "have the new paths to far memory, and nothing on the old ones".to_owned());
            let done: Vec<String> = local.into_iter().chain(ram).chain(cpus).chain(blocks).chain(paths).collect();
            match print::text(&format!("all processes {}\n", done.join(", and "))) {
                Ok(_) => ExitCode::SUCCESS,
                Err(error) => {
                    complain(format_args!("standard output cannot be written: {error}"));
                    ExitCode::from(EXIT_REFUSED)
                }
            }
        }
        Ok(change) => {
            complain(still_behind(&change, args.wait));
            ExitCode::from(EXIT_BEHIND)
        }
        Err(error) => {
            complain(error);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

fn change(args: &SetArgs) -> Result<Change, LauncherError> {
    let mut launcher = Launcher::of(args.pid)?;
    let answer = launcher.ask(&request(args)?, Duration::from_secs(args.wait))?;
    let why = || "it says nothing of a change".into();
    answer.set.ok_or_else(|| LauncherError::Garbled { pid: launcher.pid, why: why() })
}

fn request(args: &SetArgs) -> Result<Request, LauncherError> {
    let (local, ram, cpus) = (args.what.local.clone(), args.what.ram.clone(), args.what.cpus.clone());
    let (granularity, block) = (args.what.granularity.clone(), args.what.block.clone());
    let urls = |written: &[String]| {
        let urls: Result<Vec<String>, String> = written.iter().map(|url| from_here(url)).collect();
        urls.map_err(LauncherError::Refused)
    };
    let (add_far, drop_far) = (urls(&args.what.add_far)?, urls(&args.what.drop_far)?);
    Ok(Request { local, ram, cpus, granularity, block, add_far, drop_far, ..Request::set(args.wait * 1000) })
}

/// What a local budget may become, where it follows a slowdown.
pub fn ceiling(change: &Change) -> String {
    change.local_ceiling_bytes.map_or_else(String::new, |most| format!(", of {} that --slowdown may take", bytes(most)))
}

/// The processes that have not made a change.
fn still_behind(change: &Change, waited: u64) -> String {
    let name = |process: &super::Behind| {
        let program = process.program.rsplit('/').next().unwrap_or_default();
        let name = format!("{} ({})", Foreign(program), process.pid);
        match process.path_obstacle.as_str() {
            "" => format!("{name} holds {} of {} that it may", bytes(process.local_bytes), bytes(process.share_bytes)),
            obstacle => format!("{name} says: {}", Foreign(obstacle)),
        }
    };
    let named: Vec<String> = change.behind.iter().map(name).collect();
    let others = change.behind_count.saturating_sub(named.len() as u64);
    let more = if others > 0 { format!(", and {} more", count(others)) } else { String::new() };
    let ram = change.ram_budget_bytes.map_or(String::new(), |ram| format!(", that of RAM {}", bytes(ram)));
    format!(
        "the local budget is {} now{}{ram}, and after {waited} s the change is not made yet by {}{more}; they are stopped or busy, hold memory \
         that cannot leave (locked or pinned), or still move pages",
        bytes(change.local_budget_bytes),
        ceiling(change),
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::Behind;
    use super::*;

    #[test]
    fn a_value_that_is_named_is_explained() {
        let explained = [(variables::CPUS, "auto: all"), (variables::BLOCK, "auto: bandwidth times delay")];
        for (variable, words) in explained {
            assert!(of_run(variable).contains(words), "{}", of_run(variable));
        }
    }

    #[test]
    fn a_file_is_named_from_the_folder_of_the_command_on() {
        #[derive(clap::Parser)]
        struct Set {
            #[command(flatten)]
            args: SetArgs,
        }
        let words = ["set", "7", "--add-far", "file:far?size=1G", "--add-far", "floppy:x", "--drop-far", "file:/far"];
        let asked = request(&<Set as clap::Parser>::parse_from(words).args).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(asked.add_far, [format!("file:{}/far?size=1G", here.display()), "floppy:x".into()]);
        assert_eq!(asked.drop_far, ["file:/far"]);
    }

    #[test]
    fn those_that_have_not_made_a_change_are_named() {
        let process = |path_obstacle: &str| Behind {
            pid: 7,
            program: "/usr/bin/job".into(),
            local_bytes: 900 << 20,
            share_bytes: 768 << 20,
            path_obstacle: path_obstacle.into(),
        };
        let behind = vec![process(""), process("nobody listens\u{1b}")];
        let (ram_budget_bytes, local_budget_bytes) = (Some(1 << 30), 768 << 20);
        let change = Change {
            number: 1,
            local_budget_bytes,
            local_ceiling_bytes: Some(2 << 30),
            ram_budget_bytes,
            block_bytes: None,
            behind_count: 4,
            behind,
        };
        let words = still_behind(&change, 10);
        assert!(
            words.contains("by job (7) holds 900 MiB of 768 MiB that it may, job (7) says: nobody listens"),
            "{words}"
        );
        assert!(words.starts_with("the local budget is 768 MiB now, of 2 GiB that --slowdown may take, that of RAM"));
        assert!(words.contains(", and 2 more;") && !words.contains('\u{1b}'), "{words}");
    }
}
