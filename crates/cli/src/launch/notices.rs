//! Notices before the program starts, which refuse nothing: settings that may not have the intended effect.

use crate::config::{RunConfig, is_ledger};
use crate::error::complain;
use crate::host::{CgroupLimit, Host};
use hinterland_abi::{SETTINGS, variables};
use hinterland_units::{Budget, ByteCount};

/// What names of ours begin with.
const PREFIX: &str = "HINTERLAND_";
/// What those of our tests begin with.
const OF_TESTS: &str = "HINTERLAND_TEST_";
/// What a cluster sets for services that are called `hinterland-…` (Kubernetes, "Discovering services").
const OF_SERVICES: [&str; 2] = ["_SERVICE_", "_PORT"];
/// How like a name must be to one of ours to be taken for it (Jaro).
const LIKE: f64 = 0.8;

/// Says all of it.
pub fn say(config: &RunConfig, program: &str, host: &Host) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    unknown_variables(names).iter().for_each(complain);
    let is_set = config.local_origin.is_some() || config.ram_origin.is_some();
    if let Some(words) = is_set.then(|| above_the_limit(config, host.cgroup_limit())).flatten() {
        complain(words);
    }
    let local = config.local_bytes().unwrap_or_default();
    if let Some(words) = config.tapes.as_ref().and_then(|tapes| tapes.warning(local)) {
        complain(words);
    }
    if let Some(Err(error)) = config.settings.far.is_empty().then(hinterland_backend::default_file) {
        complain(format_args!(
            "warning: no file will be far memory when compressed RAM is full: {error}; set TMPDIR to a directory on a disk, or name \
             one with --far"
        ));
    }
    let ledger = std::env::var(variables::LEDGER).unwrap_or_default();
    if !config.quiet && is_ledger(&ledger) {
        complain(nested(config, program));
    }
}

/// A warning for each variable that looks like a setting and is none.
fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let known = |name: &str| SETTINGS.iter().any(|setting| setting.variable == name);
    let others = |name: &str| name.starts_with(OF_TESTS) || OF_SERVICES.iter().any(|part| name.contains(part));
    let mut unknown: Vec<String> =
        names.filter(|name| name.starts_with(PREFIX) && !known(name) && !others(name)).collect();
    unknown.sort();
    let warning = |name: &String| match nearest(name) {
        Some(near) => format!("warning: {name} is no setting; did you mean {near}?"),
        None => format!("warning: {name} is no setting; `hinterland run --help` lists them"),
    };
    unknown.iter().map(warning).collect()
}

fn nearest(name: &str) -> Option<&'static str> {
    let part = |name: &'static str| name.strip_prefix(PREFIX).unwrap_or(name);
    let written = name.strip_prefix(PREFIX).unwrap_or(name).to_ascii_uppercase();
    let like = |setting: &hinterland_abi::Setting| strsim::jaro(&written, part(setting.variable));
    let near = SETTINGS.iter().max_by(|one, other| like(one).total_cmp(&like(other)))?;
    (like(near) >= LIKE).then_some(near.variable)
}

/// A warning when the kernel would act before the budget does.
fn above_the_limit(config: &RunConfig, limit: Option<CgroupLimit>) -> Option<String> {
    let limit = limit?;
    let bounds = [(config.settings.local, &config.local_origin), (config.settings.ram, &config.ram_origin)];
    let above = bounds.into_iter().find_map(|(budget, origin)| match (budget, origin) {
        (Some(Budget::Bytes(budget)), Some(origin)) if budget.0 > limit.bytes => Some((origin, budget)),
        _ => None,
    });
    let (origin, budget) = above?;
    let (bytes, file) = (ByteCount(limit.bytes), limit.file.display());
    let what = if limit.kills() { "would kill processes of the run" } else { "would slow the run down" };
    Some(format!(
        "warning: {origin} ({budget}) is above the cgroup's limit ({bytes}, {file}): the kernel {what} before the budget is \
         reached; give less than the limit, or no budget (80 % of the limit)"
    ))
}

/// Whose budget holds in a run within a run.
fn nested(config: &RunConfig, program: &str) -> String {
    let budget = config.local_bytes().map(|bytes| bytes.to_string()).unwrap_or_default();
    let origin = match config.local_origin.as_deref() {
        Some(variables::LOCAL) => ", as the outer run has it".into(),
        Some(origin) => format!(", {origin}"),
        None => String::new(),
    };
    format!(
        "a run within a run: the budget of this inner one ({budget}{origin}) holds for {program}, and the outer one does not count it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::CgroupVersion;

    fn config(local: Option<u64>) -> RunConfig {
        let local = local.map(|bytes| Budget::Bytes(ByteCount(bytes)));
        let settings = hinterland_abi::Settings { local, ..Default::default() };
        RunConfig {
            tapes: None,
            cached_run: None,
            slowdown: None,
            credentials: None,
            settings,
            features: hinterland_sys::FeatureSet::default(),
            stats: None,
            quiet: false,
            allow_unmanaged: false,
            strict: false,
            budget_source: None,
            prefetch_source: None,
            tape_source: None,
            local_origin: local.map(|_| "--local".into()),
            ram_origin: None,
            far_origin: String::new(),
            read: Vec::new(),
        }
    }

    #[test]
    fn variables_that_are_no_settings_are_told_with_what_was_meant() {
        let names = |names: &[&str]| unknown_variables(names.iter().map(|name| (*name).to_owned()));
        let fine = ["HINTERLAND_LOCAL", "HINTERLAND_LEDGER", "HINTERLAND_TEST_SEED", "HINTERLANDS", "PATH"];
        assert_eq!(names(&fine), Vec::<String>::new());
        assert_eq!(names(&["HINTERLAND_NODE_SERVICE_HOST", "HINTERLAND_NODE_PORT_7440_TCP"]), Vec::<String>::new());
        for (wrong, meant) in [
            ("HINTERLAND_LOCL", "did you mean HINTERLAND_LOCAL?"),
            ("HINTERLAND_LOCAL_BYTES", "did you mean HINTERLAND_LOCAL?"),
            ("HINTERLAND_local", "did you mean HINTERLAND_LOCAL?"),
            ("HINTERLAND_PREFETCHER", "did you mean HINTERLAND_PREFETCH?"),
            ("HINTERLAND_KEYFILE", "did you mean HINTERLAND_KEY_FILE?"),
            ("HINTERLAND_BUDGET", "`hinterland run --help` lists them"),
        ] {
            assert_eq!(names(&[wrong]), [format!("warning: {wrong} is no setting; {meant}")]);
        }
    }

    #[test]
    fn a_budget_above_the_cgroups_limit_is_told() {
        let limit = |file: &str| CgroupLimit { bytes: 1 << 30, file: file.into(), version: CgroupVersion::V2 };
        let hard = || Some(limit("/sys/fs/cgroup/job/memory.max"));
        assert_eq!(above_the_limit(&config(Some(1 << 30)), hard()), None);
        assert_eq!(above_the_limit(&config(Some(1 << 40)), None), None);
        let words = above_the_limit(&config(Some(2 << 30)), hard()).unwrap();
        let begin = "warning: --local (2 GiB) is above the cgroup's limit (1 GiB, /sys/fs/cgroup/job/memory.max): the kernel would kill";
        assert!(words.starts_with(begin), "{words}");
        let soft = above_the_limit(&config(Some(2 << 30)), Some(limit("/sys/fs/cgroup/job/memory.high"))).unwrap();
        assert!(soft.contains("would slow the run down"), "{soft}");
    }
}
