//! `hinterland doctor`: what this machine can do, what is missing, and the remedy for each.
//!
//! Every check looks at one thing and says one of three words. *Missing* means that `hinterland run` would refuse or fail
//! here; *limited* that it works, but slower or with a caveat; *ok* that nothing needs to be done.

mod install;
mod kernel;
mod limits;
mod memory;

use crate::args::DoctorArgs;
use crate::error::{EXIT_REFUSED, complain};
use crate::host::Host;
use crate::print;
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;

/// The three states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nothing to do.
    Ok,
    /// Works, with a caveat.
    Limited,
    /// `hinterland run` would not work.
    Missing,
}

/// What one check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// The word.
    pub status: Status,
    /// What was found, and what it means.
    pub found: String,
    /// What to do; null when there is nothing to do.
    pub remedy: Option<String>,
}

impl Check {
    /// Nothing to do.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, status: Status::Ok, found: found.into(), remedy: None }
    }

    /// Works, with a caveat.
    pub fn limited(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, status: Status::Limited, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// `hinterland run` would not work.
    pub fn missing(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, status: Status::Missing, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    /// Whether `hinterland run` would work.
    ready: bool,
    version: &'static str,
    checks: &'a [Check],
}

/// Checks the machine and says what it found. Exit code 0 when `hinterland run` would work, else 1.
pub fn run(args: &DoctorArgs) -> ExitCode {
    let host = Host::here();
    let mut checks = kernel::checks(&host);
    checks.extend(memory::checks(&host));
    checks.extend(limits::checks());
    checks.extend(install::checks());
    let ready = checks.iter().all(|check| check.status != Status::Missing);
    let written = if args.json {
        let document = Document { ready, version: env!("CARGO_PKG_VERSION"), checks: &checks };
        print::json(&(serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"))
    } else {
        print::text(&text(&checks, ready))
    };
    if let Err(error) = written {
        complain(format_args!("stdout: {error}"));
        return ExitCode::from(EXIT_REFUSED);
    }
    ExitCode::from(u8::from(!ready))
}

fn text(checks: &[Check], ready: bool) -> String {
    let mut out = String::new();
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, status, found, remedy } in checks {
        let word = match status {
            Status::Ok => "OK",
            Status::Limited => "limited",
            Status::Missing => "MISSING",
        };
        let _ = writeln!(out, "{word:<8} {name:<width$}  {found}");
        if let Some(remedy) = remedy {
            let _ = writeln!(out, "{:<8} {:<width$}  -> {remedy}", "", "");
        }
    }
    out.push_str(if ready {
        "\n`hinterland run` works here.\n"
    } else {
        "\n`hinterland run` would refuse or fail here: see MISSING.\n"
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_remedy_and_the_verdict() {
        let checks = [Check::ok("kernel", "6.18"), Check::missing("userfaultfd", "forbidden", "sysctl -w x=1")];
        let text = text(&checks, false);
        assert!(text.contains("OK       kernel       6.18\n"), "{text}");
        assert!(text.contains("-> sysctl -w x=1\n"), "{text}");
        assert!(text.ends_with("see MISSING.\n"), "{text}");
    }

    #[test]
    fn every_check_that_is_not_ok_has_a_remedy() {
        let host = Host::here();
        let checks = [kernel::checks(&host), memory::checks(&host), limits::checks(), install::checks()].concat();
        assert!(checks.len() >= 15, "{}", checks.len());
        for check in checks {
            assert_eq!(check.status == Status::Ok, check.remedy.is_none(), "{check:?}");
        }
    }
}
