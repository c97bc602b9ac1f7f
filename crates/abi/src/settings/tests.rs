//! Settings survive the way through the environment, and the rows agree with themselves.

use super::*;
use hinterland_units::{ByteCount, CopyBound};
use std::collections::BTreeSet;

fn read(pairs: &[(&str, &str)]) -> Result<Settings, (&'static str, EnvError)> {
    Settings::from_env(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
}

#[test]
fn an_empty_environment_gives_the_defaults() {
    assert_eq!(read(&[]), Ok(Settings::default()));
}

#[test]
fn reads_back_what_it_writes() {
    let settings = Settings {
        local: "25%".parse().ok(),
        ram: "2G".parse().ok(),
        far: vec!["compressed:4G".into(), "file:/tmp/far?size=1G".into()],
        placement: PlacementName::Spread,
        costs: vec!["file=0.01".into(), "tcp://a:7440=0.25".into()],
        replicas: Some(2),
        encrypt: true,
        insecure_loopback: true,
        tls: "/etc/a.pem,/etc/a.key".into(),
        tls_ca: "/etc/ca.pem".into(),
        key_file: "/etc/key".into(),
        heap: HeapMode::Large,
        evict: EvictName::TwoQ,
        copies: Some(CopyBound::Percent(12)),
        prefetch: PrefetchName::ReadAheadVma,
        read_ahead_pages: Some(16),
        prefetch_cache: Some(ByteCount(4 << 20)),
        granularity: GranularityName::Auto,
        block: Some(ByteCount(2 << 20)),
        tape_batch_pages: Some(50),
        tape_lookahead_pages: Some(200),
        cpus: Some(2),
        fault_path: FaultPathName::Inline,
        features: "6.1".into(),
        trace: "/tmp/app.trace".into(),
        microset_pages: Some(7),
        tape_memory: "/proc/1/fd/5".into(),
        profile_memory: "/proc/1/fd/6".into(),
        ledger: "/proc/1/fd/3".into(),
        handover: "/run/user/7/hinterland/1.files".into(),
        filters: Some(3),
    };
    let pairs = settings.to_env();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (*n, v.as_str())).collect();
    assert_eq!(read(&pairs), Ok(settings));
}

#[test]
fn names_the_variable_that_is_wrong() {
    assert_eq!(read(&[(variables::HEAP, "some")]).unwrap_err().0, variables::HEAP);
    assert_eq!(read(&[(variables::LOCAL, "1K")]).unwrap_err().0, variables::LOCAL);
    assert_eq!(read(&[(variables::PREFETCH, "markov")]).unwrap_err().0, variables::PREFETCH);
    assert_eq!(read(&[(variables::REPLICAS, "0")]).unwrap_err().0, variables::REPLICAS);
    assert_eq!(read(&[(variables::READ_AHEAD, "9999")]).unwrap_err().0, variables::READ_AHEAD);
    assert_eq!(read(&[(variables::PREFETCH_CACHE, "512K")]).unwrap_err().0, variables::PREFETCH_CACHE);
    assert_eq!(read(&[(variables::MICROSET, "0")]).unwrap_err().0, variables::MICROSET);
    assert_eq!(read(&[(variables::TAPE_BATCH, "0")]).unwrap_err().0, variables::TAPE_BATCH);
    for nonsense in ["0", "2K", "48K", "4M", "huge"] {
        assert_eq!(read(&[(variables::BLOCK, nonsense)]).unwrap_err().0, variables::BLOCK);
    }
    assert_eq!(read(&[(variables::BLOCK, "auto")]).map(|read| read.block), Ok(None));
    assert_eq!(read(&[(variables::CPUS, "0")]).unwrap_err().0, variables::CPUS);
    assert_eq!(read(&[(variables::COPIES, "101%")]).unwrap_err().0, variables::COPIES);
    assert_eq!(read(&[(variables::CPUS, "auto")]).map(|read| read.cpus), Ok(None));
    assert_eq!(read(&[(variables::TAPE_LOOKAHEAD, "auto")]).map(|read| read.tape_lookahead_pages), Ok(None));
}

#[test]
fn a_setting_has_the_same_name_everywhere_and_to_itself() {
    let mut names = BTreeSet::new();
    for setting in SETTINGS {
        assert_eq!(setting.variable, format!("HINTERLAND_{}", setting.key().to_uppercase()));
        assert!(names.insert(setting.name), "{}: named twice", setting.name);
        assert!(!setting.help.is_empty() && !setting.help.ends_with('.'), "{}", setting.name);
    }
}

#[test]
fn the_defaults_in_words_are_those_that_hold() {
    let choices = [variables::HEAP, variables::EVICT, variables::PREFETCH, variables::FAULT_PATH];
    let defaults = Settings::default().to_env();
    for variable in choices {
        let holds = &defaults.iter().find(|(name, _)| *name == variable).unwrap().1;
        assert_eq!(Setting::of(variable).unwrap().default, holds);
    }
}

#[test]
fn every_choice_reads_back_by_its_name() {
    for prefetcher in PrefetchName::ALL {
        assert_eq!(prefetcher.name().parse(), Ok(*prefetcher));
    }
    for policy in EvictName::ALL {
        assert_eq!(policy.name().parse(), Ok(*policy));
    }
    assert_eq!(HeapMode::CHOICES, "all, large");
    let refused = "markov".parse::<EvictName>().unwrap_err().to_string();
    assert_eq!(refused, "'markov' is no eviction policy; choose from fifo, second-chance, s3-fifo, 2q");
}
