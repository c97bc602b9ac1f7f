//! Precedence, defaults and refusals of settings, and the file that shows them all.

use super::*;
use crate::args::{Cli, Command};
use clap::Parser;
use hinterland_abi::variables::{ALLOW_UNMANAGED, CONFIG, QUIET, STATS};
use hinterland_abi::{EvictName, Form, GranularityName, HeapMode, PrefetchName, SETTINGS, Setting, Sources};
use hinterland_tape::tape::{TapeHead, TapeWriter};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const GIB: u64 = 1 << 30;

/// A machine with 8 GiB available and a settings file.
struct Machine {
    dir: tempfile::TempDir,
    variables: Vec<(String, OsString)>,
}

impl Machine {
    fn new(file: &str) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        let meminfo = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n";
        std::fs::write(dir.path().join("proc/meminfo"), meminfo).unwrap();
        std::fs::create_dir_all(dir.path().join("hinterland")).unwrap();
        std::fs::write(dir.path().join("hinterland/config.toml"), file).unwrap();
        let home = dir.path().display().to_string();
        Machine { dir, variables: vec![("XDG_CONFIG_HOME".into(), home.into())] }
    }

    fn with(mut self, variable: &str, value: impl AsRef<OsStr>) -> Machine {
        self.variables.push((variable.into(), value.as_ref().into()));
        self
    }

    fn resolve(&self, args: &RunArgs) -> Result<RunConfig, String> {
        let variable = |name: &str| {
            let found = self.variables.iter().rev().find(|(known, _)| known == name);
            found.ok_or(VarError::NotPresent)?.1.clone().into_string().map_err(VarError::NotUnicode)
        };
        let config = resolve(args, variable, &Host::at(self.dir.path())).map_err(|error| error.to_string())?;
        // Each machine has its files elsewhere.
        Ok(RunConfig { read: Vec::new(), ..config })
    }
}

fn bytes(budget: Option<Budget>) -> u64 {
    match budget {
        Some(Budget::Bytes(bytes)) => bytes.0,
        other => panic!("{other:?}"),
    }
}

/// What clap makes of `hinterland run FLAGS`.
fn flags(flags: &[&str]) -> RunArgs {
    let words = ["hinterland", "run"].iter().chain(flags).chain(&["--", "true"]);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Run(args) => *args,
        _ => panic!("not a run"),
    }
}

fn local(text: &str) -> RunArgs {
    flags(&["--local", text])
}

#[test]
fn flags_beat_variables_beat_the_file_beat_the_defaults() {
    let machine = Machine::new("local = \"1G\"\nheap = \"large\"\nread_ahead = 7\nprefetch = \"leap\"")
        .with(variables::LOCAL, "2G");
    assert_eq!(bytes(machine.resolve(&local("3G")).unwrap().settings.local), 3 * GIB);
    let config = machine.resolve(&RunArgs::default()).unwrap();
    assert_eq!(bytes(config.settings.local), 2 * GIB);
    assert_eq!((config.settings.heap, config.settings.read_ahead_pages), (HeapMode::Large, Some(7)));
    assert_eq!(config.settings.prefetch, PrefetchName::Leap);
    let args = flags(&["--prefetch", "stride"]);
    assert_eq!(machine.resolve(&args).unwrap().settings.prefetch, PrefetchName::Stride);
    assert_eq!(config.settings.evict, EvictName::default());
    let machine = machine.with(variables::LOCAL, "");
    assert_eq!(bytes(machine.resolve(&RunArgs::default()).unwrap().settings.local), GIB);
}

#[test]
fn without_any_budget_both_bounds_are_80_percent_of_what_is_available() {
    let config = Machine::new("").resolve(&RunArgs::default()).unwrap();
    assert_eq!(bytes(config.settings.local), 8 * GIB / 5 * 4);
    assert_eq!(config.settings.ram, config.settings.local);
    assert!(config.budget_source.unwrap().contains("8 GiB"));
}

#[test]
fn one_bound_alone_is_kept_as_it_is() {
    let config = Machine::new("").resolve(&local("1G")).unwrap();
    assert_eq!((config.settings.ram, config.budget_source), (None, None));
    let config = Machine::new("").resolve(&flags(&["--ram", "2G"])).unwrap();
    assert_eq!((bytes(config.settings.local), bytes(config.settings.ram)), (2 * GIB, 2 * GIB));
}

#[test]
fn a_share_is_of_the_ram_or_of_the_cgroups_limit() {
    let machine = Machine::new("");
    let config = machine.resolve(&local("25%ram")).unwrap();
    assert_eq!((bytes(config.settings.local), config.settings.ram), (4 * GIB, None));
    assert_eq!(config.budget_source.unwrap(), "25 % of 16 GiB (RAM, /proc/meminfo)");
    let config = machine.resolve(&flags(&["--ram", "50%ram"])).unwrap();
    assert_eq!((bytes(config.settings.local), bytes(config.settings.ram)), (8 * GIB, 8 * GIB));
    let write = |file: &str, text: &str| {
        let file = machine.dir.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write("proc/self/cgroup", "0::/job\n");
    write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("sys/fs/cgroup/job/memory.max", "1073741824\n");
    let config = machine.resolve(&local("25%ram")).unwrap();
    assert_eq!(bytes(config.settings.local), GIB / 4);
    assert_eq!(config.budget_source.unwrap(), "25 % of 1 GiB (/sys/fs/cgroup/job/memory.max)");
    write("sys/fs/cgroup/job/memory.max", "1048576\n");
    assert_eq!(bytes(machine.resolve(&local("25%ram")).unwrap().settings.local), Budget::FLOOR.0);
}

#[test]
fn a_share_of_what_the_program_touches_is_refused_with_the_remedy() {
    let refused = Machine::new("").resolve(&local("25%")).unwrap_err();
    assert!(refused.starts_with("--local: 25% of what?"), "{refused}");
    assert!(refused.contains("25%ram") && refused.contains("512M"), "{refused}");
    assert!(Machine::new("ram = \"25%\"").resolve(&RunArgs::default()).unwrap_err().contains("ram: 25% of what?"));
}

#[test]
fn the_launchers_own_settings_come_from_all_sources_too() {
    let machine = Machine::new("quiet = true\nstats = \"a.json\"\nfar = [\"compressed:1G\", \"file:/tmp\"]");
    let config = machine.resolve(&RunArgs::default()).unwrap();
    assert!(config.quiet && !config.allow_unmanaged);
    assert_eq!(config.stats, Some(StatsTarget::File("a.json".into())));
    assert_eq!(config.settings.far, ["compressed:1G", "file:/tmp"]);
    let machine = machine.with(QUIET, "no").with(STATS, "-").with(ALLOW_UNMANAGED, "1");
    let config = machine.resolve(&RunArgs::default()).unwrap();
    assert!(!config.quiet && config.allow_unmanaged);
    assert_eq!(config.stats, Some(StatsTarget::Stdout));
}

#[test]
fn refusals_name_the_place_and_what_may_stand_there() {
    let refusal = |machine: Machine, args: RunArgs| machine.resolve(&args).unwrap_err();
    let plain = || Machine::new("");
    let unit = "'12Q' has an unknown unit; use K, M, G or T (powers of 1024), or a share such as 25%ram";
    assert_eq!(refusal(plain(), local("12Q")), format!("--local: {unit}"));
    assert_eq!(refusal(plain().with(variables::LOCAL, "12Q"), RunArgs::default()), format!("HINTERLAND_LOCAL: {unit}"));
    let text = refusal(Machine::new("local = \"12Q\""), RunArgs::default());
    assert!(text.ends_with(&format!("config.toml: local: {unit}")), "{text}");
    assert!(refusal(plain(), local("1M")).contains("below the smallest budget, 16 MiB"));
    assert!(refusal(plain(), local("")).starts_with("--local: is empty"));
    assert!(refusal(plain(), flags(&["--config", ""])).starts_with("--config: is empty"));
    assert!(refusal(plain(), local("101%")).contains("1% to 100%"));
    let far = |url: &str| flags(&["--far", url]);
    assert!(refusal(plain(), far("nonsense")).starts_with("--far: 'nonsense'"));
    let many = refusal(plain(), flags(&["--far", "reference:16M"].repeat(17)));
    assert_eq!(many, "--far: 17 paths to far memory are too many; 16 are the most");
    assert!(plain().resolve(&flags(&["--far", "reference:16M"].repeat(16))).is_ok());
    assert!(refusal(plain(), far("file:/a b")).contains("contains a space"));
    let replicas = |far: &str, replicas: &str| flags(&["--far", far, "--replicas", replicas, "--insecure-loopback"]);
    let two = "tcp://127.0.0.1:1,tcp://127.0.0.1:2";
    assert!(refusal(plain(), replicas(two, "3")).contains("3 replicas need 3 nodes, and here are 2"));
    assert!(
        refusal(plain(), replicas("compressed", "2")).starts_with("--replicas: 2 replicas need as many memory nodes")
    );
    assert!(refusal(plain(), replicas(two, "none")).contains("'none' is not a number of replicas"));
    assert!(refusal(plain(), far("unix:/a,unix:/a")).contains("is named twice"));
    assert_eq!(plain().resolve(&replicas(two, "2")).unwrap().settings.far, [format!("{two}?replicas=2")]);
    assert!(
        refusal(plain().with(variables::FAULT_PATH, "direct"), RunArgs::default()).contains("auto, monitor, inline")
    );
    let args = flags(&["--prefetch", "markov"]);
    assert!(
        refusal(plain(), args).starts_with("--prefetch: 'markov' is no prefetcher; choose from auto, none, next-n")
    );
    assert!(refusal(plain().with(variables::FEATURES, "7.0"), RunArgs::default()).contains("no-uffd"));
    assert!(refusal(plain().with(QUIET, "maybe"), RunArgs::default()).starts_with("HINTERLAND_QUIET: 'maybe'"));
}

/// Programs of the run may start in other directories.
#[test]
fn a_file_is_meant_where_the_run_starts() {
    let here = std::env::current_dir().unwrap().display().to_string();
    let far = |url: &str| Machine::new("").resolve(&flags(&["--far", url])).unwrap().settings.far;
    assert_eq!(far("file:far?size=1G"), [format!("file:{here}/far?size=1G")]);
    assert_eq!(far("file:/tmp/../far?direct=off"), ["file:/tmp/../far?direct=off"]);
    let names = FarNames { protection: Protection::None, replicas: None };
    assert_eq!(names.known("--drop-far", "file:far?size=1G").unwrap(), format!("file:{here}/far?size=1G"));
}

#[test]
fn total_ram_below_the_local_budget_is_a_contradiction() {
    let args = |ram: &str, local: &str| flags(&["--ram", ram, "--local", local]);
    let machine = Machine::new("");
    assert!(
        machine.resolve(&args("1G", "2G")).unwrap_err().starts_with("--ram (1 GiB) is smaller than --local (2 GiB)")
    );
    assert!(machine.resolve(&args("10%ram", "20%ram")).is_err());
    assert!(machine.resolve(&args("1G", "20%ram")).is_err());
    assert!(machine.resolve(&args("4G", "20%ram")).is_ok());
    assert!(machine.resolve(&args("2G", "2G")).is_ok());
}

#[test]
fn the_settings_file_must_make_sense() {
    let refusal = |file: &str| Machine::new(file).resolve(&RunArgs::default()).unwrap_err();
    assert!(refusal("locl = \"1G\"").contains("unknown setting 'locl'; choose from local, ram"));
    assert!(refusal("quiet = true\nlocal = ").contains("is not TOML: line 2: "));
    assert!(refusal("[local]\nx = 1").contains("'local' is a table"));
    let machine = Machine::new("").with(CONFIG, "/nonexistent/file.toml");
    assert!(machine.resolve(&RunArgs::default()).unwrap_err().starts_with("/nonexistent/file.toml: "));
    let elsewhere = Machine::new("").with("XDG_CONFIG_HOME", "/nonexistent");
    assert!(elsewhere.resolve(&RunArgs::default()).is_ok());
    // Accounts of services have no home; and what the working directory has is no setting.
    for (base, home) in [("/dev/null", "/dev/null"), (".", "/dev/null"), ("target", "tests")] {
        let service = Machine::new("").with("XDG_CONFIG_HOME", base).with("HOME", home);
        assert!(service.resolve(&RunArgs::default()).is_ok(), "{base}, {home}");
    }
    let relative = Machine::new("nonsense").with("HOME", "/nonexistent");
    let base = std::env::current_dir().unwrap().ancestors().skip(1).map(|_| "../").collect::<String>();
    let path = relative.dir.path().strip_prefix("/").unwrap().display().to_string();
    assert!(relative.resolve(&RunArgs::default()).is_err());
    assert!(relative.with("XDG_CONFIG_HOME", base + &path).resolve(&RunArgs::default()).is_ok());
}

#[test]
fn a_machine_that_is_too_small_says_so() {
    let machine = Machine::new("");
    std::fs::write(machine.dir.path().join("proc/meminfo"), "MemTotal: 1 kB\nMemAvailable: 10240 kB\n").unwrap();
    assert!(machine.resolve(&RunArgs::default()).unwrap_err().contains("below the smallest budget"));
    assert!(machine.resolve(&local("16M")).is_ok());
}

/// A value for each setting of a run, as its flag and its variable have it, and as the file has it.
fn example(setting: &Setting) -> (&'static str, &'static str) {
    match setting.variable {
        variables::LOCAL | variables::RAM => ("1G", "\"1G\""),
        variables::FAR => ("unix:/a,unix:/b", "[\"unix:/a,unix:/b\"]"),
        variables::PLACEMENT => ("spread", "\"spread\""),
        variables::COSTS => ("file=0.01", "[\"file=0.01\"]"),
        variables::REPLICAS => ("2", "2"),
        variables::HEAP => ("large", "\"large\""),
        variables::EVICT => ("2q", "\"2q\""),
        variables::COPIES => ("peak", "\"peak\""),
        variables::PREFETCH => ("leap", "\"leap\""),
        variables::READ_AHEAD => ("7", "7"),
        variables::GRANULARITY => ("auto", "\"auto\""),
        variables::PREFETCH_CACHE => ("4M", "\"4M\""),
        variables::TAPE_BATCH | variables::TAPE_LOOKAHEAD => ("50", "50"),
        variables::BLOCK => ("64K", "\"64K\""),
        variables::CPUS => ("2", "2"),
        variables::FAULT_PATH => ("inline", "\"inline\""),
        variables::FEATURES => ("6.1", "\"6.1\""),
        variables::SLOWDOWN => ("1.2", "1.2"),
        variables::STATS => ("a.json", "\"a.json\""),
        _ if setting.form == Form::Switch => ("1", "true"),
        other => panic!("{other}: an example, please"),
    }
}

#[test]
fn each_setting_means_the_same_as_flag_as_variable_and_in_the_file() {
    let files = [variables::TLS, variables::TLS_CA, variables::KEY_FILE, variables::TAPE];
    let of_a_run = SETTINGS.iter().filter(|setting| setting.sources == Sources::Run);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(TAPE), tape(10_000)).unwrap();
    let file_of_tape = directory.path().join(TAPE).display().to_string();
    for setting in of_a_run.filter(|setting| !files.contains(&setting.variable)) {
        let (text, toml) = example(setting);
        // Replicas want a pool.
        let pool = if setting.variable == variables::REPLICAS { "unix:/a,unix:/b" } else { "" };
        // As the pace of a tape wants a tape.
        let paces = [variables::TAPE_BATCH, variables::TAPE_LOOKAHEAD].contains(&setting.variable);
        let followed = if paces { file_of_tape.as_str() } else { "" };
        // And costs pages that go by them.
        let placement = if setting.variable == variables::COSTS { "auto" } else { "" };
        let plain = |file: &str| {
            let settings = [(variables::FAR, pool), (variables::TAPE, followed), (variables::PLACEMENT, placement)];
            settings.iter().fold(Machine::new(file), |machine, (variable, value)| machine.with(variable, value))
        };
        let flag = setting.flag();
        let words = if setting.form == Form::Switch { vec![flag.as_str()] } else { vec![flag.as_str(), text] };
        // Where prefetcher and budgets were chosen is told, so it differs.
        let value = |config: RunConfig| RunConfig {
            prefetch_source: None,
            local_origin: None,
            ram_origin: None,
            far_origin: String::new(),
            ..config
        };
        let by_flag = value(plain("").resolve(&flags(&words)).unwrap());
        let by_variable = plain("").with(setting.variable, text).resolve(&RunArgs::default());
        let by_file = plain(&format!("{} = {toml}", setting.key())).resolve(&RunArgs::default());
        assert_ne!(by_flag, value(plain("").resolve(&RunArgs::default()).unwrap()), "{flag}: no difference");
        assert_eq!(by_flag, value(by_variable.unwrap()), "{flag}");
        assert_eq!(by_flag, value(by_file.unwrap()), "{flag}");
    }
}

/// The places that the file of `hinterland settings` names for keys and certificates.
const SECRETS: &str = "/etc/hinterland/";

/// The tape that it names.
const TAPE: &str = "fft.tape";

/// A tape of no thread, of a program that had so many pages.
fn tape(peak_pages: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let head = TapeHead { page_bytes: 4096, peak_pages, ..TapeHead::default() };
    TapeWriter::new(&mut bytes, &head, &[]).unwrap().finish(&[]).unwrap();
    bytes
}

#[test]
fn with_a_tape_a_share_is_of_the_recorded_peak() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(TAPE);
    std::fs::write(&path, tape(100_000)).unwrap();
    let path = path.display().to_string();
    let config = Machine::new("").resolve(&flags(&["--tape", &path, "--local", "20%"])).unwrap();
    assert_eq!(config.local_bytes(), Some(ByteCount(20_000 * 4096)));
    let source = config.budget_source.unwrap();
    assert!(
        source.starts_with("20 % of 390.6 MiB, the peak that ") && source.ends_with("fft.tape has recorded"),
        "{source}"
    );
    let refused = |words: &[&str]| Machine::new("").resolve(&flags(words)).unwrap_err();
    assert!(refused(&["--local", "20%"]).contains("or a tape with --tape"));
    assert!(refused(&["--tape", "/nonexistent/a.tape"]).starts_with("--tape: /nonexistent/a.tape: No such file"));
    assert!(refused(&["--tape", "/dev/null"]).contains("a tape is a file"));
    let hostile = directory.path().join("hostile.tape");
    std::fs::write(&hostile, tape(1 << 60)).unwrap();
    let why = refused(&["--tape", &hostile.display().to_string(), "--local", "20%"]);
    assert!(why.contains("the head cannot be read"), "more pages than there are numbers for: {why}");
    std::fs::remove_file(&hostile).unwrap();
    let folder = directory.path().display().to_string();
    assert!(
        refused(&["--tape", &folder]).contains("no tape in it can be used"),
        "it does not say of which program it is"
    );
    let head = TapeHead { program: "/bin/fft".into(), page_bytes: 4096, peak_pages: 100_000, ..TapeHead::default() };
    let mut bytes = Vec::new();
    TapeWriter::new(&mut bytes, &head, &[]).unwrap().finish(&[]).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let share = refused(&["--tape", &folder, "--local", "20%"]);
    assert!(share.contains("which of these run at the same time") && share.contains("390.6 MiB"), "{share}");
    let config = Machine::new("").resolve(&flags(&["--tape", &folder, "--local", "64M"])).unwrap();
    assert_eq!(config.tape_source, Some(format!("{folder}: 1 tapes")));
    assert!(refused(&["--tape-batch", "0"]).starts_with("--tape-batch: '0' is neither auto nor a number of pages"));
}

#[test]
fn the_pace_of_a_tape_is_refused_as_a_flag_where_no_tape_is_named() {
    let refused = |machine: Machine, words: &[&str]| machine.resolve(&flags(words)).unwrap_err();
    for flag in ["--tape-batch", "--tape-lookahead"] {
        let why = "it is about following a tape, and none is named: give one with --tape FILE, or leave it out";
        assert_eq!(refused(Machine::new(""), &[flag, "8"]), format!("{flag}: {why}"));
    }
    // What holds for every run of a user holds for those with a tape.
    assert!(Machine::new("tape_batch = 8").with(variables::TAPE_LOOKAHEAD, "9").resolve(&RunArgs::default()).is_ok());
    assert!(Machine::new("").resolve(&flags(&["--tape", "auto", "--tape-batch", "8"])).is_ok());
}

/// Makes the certificates, the key and the tape that the file names, in a directory.
fn make_secrets(directory: &std::path::Path) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["job".to_owned()]).unwrap().self_signed(&key).unwrap();
    let files = [
        ("tls.pem", certificate.pem()),
        ("ca.pem", certificate.pem()),
        ("tls.key", key.serialize_pem()),
        ("far.key", "k".repeat(32)),
    ];
    std::fs::write(directory.join(TAPE), tape(10_000)).unwrap();
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
}

#[test]
fn the_file_with_all_settings_sets_nothing_and_each_of_its_lines_is_accepted() {
    let file = example::file();
    assert_eq!(file.parse::<toml::Table>().unwrap(), toml::Table::new(), "a line is not commented out");
    let nothing = Machine::new(&file).resolve(&RunArgs::default()).unwrap();
    assert_eq!(nothing, Machine::new("").resolve(&RunArgs::default()).unwrap());
    let secrets = tempfile::tempdir().unwrap();
    make_secrets(secrets.path());
    let of_a_run: Vec<_> = SETTINGS.iter().filter(|setting| setting.sources == Sources::Run).collect();
    let lines: Vec<&str> = file
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with(' ') && !line.is_empty())
        .collect();
    assert_eq!(lines.len(), of_a_run.len(), "{lines:?}");
    for (line, setting) in lines.iter().zip(of_a_run) {
        let line = line.replace(SECRETS, &format!("{}/", secrets.path().display()));
        let line = line.replace(TAPE, &secrets.path().join(TAPE).display().to_string());
        let table: toml::Table = line.parse().unwrap();
        assert_eq!(table.keys().collect::<Vec<_>>(), [&setting.key()], "{line}");
        let machine = Machine::new(&line);
        let machine = match setting.variable {
            // What goes together.
            variables::TLS => machine.with(variables::TLS_CA, secrets.path().join("ca.pem").display().to_string()),
            variables::TLS_CA => {
                let pair = ["tls.pem", "tls.key"].map(|name| secrets.path().join(name).display().to_string());
                machine.with(variables::TLS, pair.join(","))
            }
            variables::REPLICAS => machine.with(variables::FAR, "unix:/a,unix:/b"),
            _ => machine,
        };
        let config = machine.resolve(&RunArgs::default()).unwrap_or_else(|why| panic!("{line}: {why}"));
        // What is shown is the default, where that is a value: so removing the # changes nothing.
        if setting.example.is_empty() && setting.variable != variables::REPLICAS {
            // (All features is said by no word, too.)
            let mut config = RunConfig { prefetch_source: None, ..config };
            config.settings.features.retain(|_| setting.variable != variables::FEATURES);
            assert_eq!(config, nothing, "{line}");
        }
    }
}

#[test]
fn a_variable_that_is_not_utf_8_is_refused_unless_a_flag_says_it() {
    let foreign = OsStr::from_bytes(b"/tmp/\xff");
    for name in [variables::LOCAL, STATS, CONFIG, QUIET] {
        let refused = Machine::new("").with(name, foreign).resolve(&RunArgs::default()).unwrap_err();
        assert_eq!(refused, format!("{name}: is not UTF-8; write its value in UTF-8, or unset it"));
    }
    assert!(Machine::new("").with(variables::LOCAL, foreign).resolve(&local("64M")).is_ok());
}

#[test]
fn a_flag_in_a_run_within_a_run_puts_aside_what_the_outer_one_says_of_the_same() {
    let inherited = [
        (variables::LOCAL, "64M"),
        (variables::RAM, "64M"),
        (variables::GRANULARITY, "page"),
        (variables::FAR, "unix:/a,unix:/b"),
        (variables::REPLICAS, "2"),
        (variables::PREFETCH_CACHE, "1M"),
    ];
    let outside = || inherited.iter().fold(Machine::new(""), |machine, (name, text)| machine.with(name, text));
    let ledger = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&ledger, hinterland_abi::LEDGER_MAGIC.to_le_bytes()).unwrap();
    let inside = || outside().with(variables::LEDGER, ledger.path());
    let after = || outside().with(variables::LEDGER, "/proc/1/fd/9");
    for words in
        [["--ram", "32M"], ["--local", "1G"], ["--block", "64K"], ["--far", "file:/tmp"], ["--read-ahead", "99"]]
    {
        assert!(outside().resolve(&flags(&words)).is_err(), "{words:?}");
        assert!(after().resolve(&flags(&words)).is_err(), "{words:?}: that run has ended");
        assert!(inside().resolve(&flags(&words)).is_ok(), "{words:?}");
    }
    let settings = inside().resolve(&flags(&["--block", "64K"])).unwrap().settings;
    assert_eq!((bytes(settings.local), settings.replicas), (64 << 20, Some(2)), "what else it says holds");
    let settings = inside().resolve(&flags(&["--ram", "1G"])).unwrap().settings;
    assert_eq!((bytes(settings.local), bytes(settings.ram)), (64 << 20, 1 << 30), "what contradicts nothing holds");
    let settings = inside().resolve(&flags(&["--far", "unix:/c,unix:/d"])).unwrap().settings;
    assert_eq!(settings.replicas, Some(2), "so many copies");
    let words = ["--ram", "32M", "--far", "unix:/c,unix:/d"];
    let settings = inside().resolve(&flags(&words)).unwrap().settings;
    assert_eq!((bytes(settings.ram), settings.replicas), (32 << 20, Some(2)), "no more is put aside than must be");
}

#[test]
fn a_block_has_a_granularity_and_what_contradicts_is_refused() {
    let machine = Machine::new("");
    let resolved = |words: &[&str]| machine.resolve(&flags(words)).map(|config| config.settings);
    let of = |words: &[&str]| resolved(words).map(|settings| (settings.granularity, settings.block)).unwrap();
    let size = Some(ByteCount(64 << 10));
    assert_eq!(of(&["--block", "64K"]), (GranularityName::Auto, size));
    assert_eq!(of(&["--block", "64K", "--granularity", "block"]), (GranularityName::Block, size));
    assert_eq!(of(&["--block", "auto"]), (GranularityName::Page, None));
    let why = resolved(&["--block", "64K", "--granularity", "page"]).unwrap_err();
    assert!(why.contains("--block: no blocks are asked for with --granularity page"), "{why}");
    let why = resolved(&["--block", "3M"]).unwrap_err();
    assert!(why.contains("a power of two from 4 KiB to 2 MiB"), "{why}");
    let now = (GranularityName::Page, None);
    assert_eq!(changed_blocks(now, None, Some("64K")).ok(), Some((GranularityName::Auto, size)));
    assert_eq!(
        changed_blocks((GranularityName::Both, size), None, Some("auto")).ok(),
        Some((GranularityName::Both, None))
    );
    assert_eq!(
        changed_blocks((GranularityName::Both, size), Some("page"), None).ok(),
        Some((GranularityName::Page, size))
    );
    assert!(
        changed_blocks(now, Some("page"), Some("64K")).is_err() && changed_blocks(now, Some("line"), None).is_err()
    );
}

#[test]
fn costs_of_a_file_are_put_in_its_place_where_pages_go_by_costs() {
    let machine = Machine::new("");
    let file = machine.dir.path().join("costs.toml");
    let backend = |name: &str, far: &str| format!("[[backend]]\nname = \"{name}\"\nlink = \"ssd\"\ncost = 0.25\n{far}");
    let text = format!("version = 1\n{}{}", backend("a", "far = \"tcp://a:7440\"\n"), backend("b", ""));
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let with = |words: &[&str]| machine.resolve(&flags(words)).map(|config| config.settings.costs);
    let costs = with(&["--placement", "auto", "--costs", "file=0.01", "--costs", &file]).unwrap();
    assert_eq!(costs, ["file=0.01", "tcp://a:7440=0.25"]);
    // As a run within a run reads them.
    assert_eq!(with(&["--placement", "auto", "--costs", &costs[0], "--costs", &costs[1]]).unwrap(), costs);
    let refused = |words: &[&str], why: &str| {
        let said = with(words).unwrap_err();
        assert!(said.contains("--costs") && said.contains(why), "{said}");
    };
    refused(&["--placement", "auto", "--costs", "file=0"], "'file=0' states no cost");
    refused(&["--placement", "auto", "--costs", "/nowhere/costs.toml"], "/nowhere/costs.toml: ");
    refused(&["--placement", "auto", "--costs", "tpc=0.2"], "there is no backend 'tpc'");
    refused(&["--costs", "file=0.01"], "with --placement auto alone");
    let elsewhere = Machine::new("").with(variables::COSTS, "/nowhere/costs.toml");
    assert_eq!(elsewhere.resolve(&flags(&[])).unwrap().settings.costs, ["/nowhere/costs.toml"], "nothing looks at it");
    let blank = format!("version = 1\n{}", backend("a", "far = \"file:/a b\"\n"));
    std::fs::write(&file, blank).unwrap();
    refused(&["--placement", "auto", "--costs", &file], "'file:/a b=0.25' contains a space");
}

/// The library compares the URLs of costs with those of paths.
#[test]
fn costs_are_of_the_urls_by_which_the_library_knows_the_paths() {
    let machine = Machine::new("");
    let costs = machine.dir.path().join("costs.toml").display().to_string();
    let backend = "[[backend]]\nname = \"a\"\nlink = \"ssd\"\ncost = 0.25\nfar = \"file:far?size=1G\"\n";
    std::fs::write(&costs, format!("version = 1\n{backend}")).unwrap();
    let [pair, one] = ["tcp://localhost:1,tcp://localhost:2", "tcp://localhost:3?replicas=1"];
    let stated = [format!("{pair}=0.1"), format!("{one}=0.6")];
    let far = ["--far", "file:far?size=1G", "--far", pair, "--far", one, "--replicas", "2", "--insecure-loopback"];
    let by_costs = ["--placement", "auto", "--costs", &costs, "--costs", &stated[0], "--costs", &stated[1]];
    let settings = machine.resolve(&flags(&[&far[..], &by_costs].concat())).unwrap().settings;
    let wanted = settings.far.iter().zip(["0.25", "0.1", "0.6"]).map(|(url, cost)| format!("{url}={cost}"));
    assert_eq!(settings.costs, wanted.collect::<Vec<_>>());
    let is_known = |url: &String| url.starts_with("file:/") || url.starts_with("tcp://127.0.0.1:");
    assert!(settings.far.iter().all(is_known), "{:?}", settings.far);
}
