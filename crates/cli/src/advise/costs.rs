//! The backends to choose from, with what they cost: a TOML file that people write, or [`DEFAULTS`].

use crate::toml_error;
use hinterland_sim::LinkModel;
use serde::Deserialize;
use std::path::Path;

/// The version of such files.
const VERSION: u64 = 1;
/// Backends in a file at most: each is simulated at several sizes.
const BACKENDS_MAX: usize = 32;

/// What `advise` takes without a file, and an example of one.
pub const DEFAULTS: &str = r#"# What a GiB of far memory costs, beside a GiB of local RAM (1.0). These are orders of magnitude; write your own.
version = 1

# Pages compressed to 0.4 of their size. "link": latency:bandwidth, as `hinterland sim --link` takes it; here what decompression takes.
[[backend]]
name = "compressed"
link = "1us:32Gb/s"
cost = 0.4
far = "compressed"

# Plain pages on another NUMA node: CXL memory, or what another socket has idle. "link" is the node's latency and what one thread copies.
[[backend]]
name = "numa"
link = "400ns:80Gb/s"
cost = 0.5
far = "numa:NODE"

# Memory that other machines have idle, over a fast network.
[[backend]]
name = "node-25g"
link = "rdma-25g"
cost = 0.3
far = "tcp://HOST:7440"

# The same over an ordinary network.
[[backend]]
name = "node-10g"
link = "tcp-10g"
cost = 0.2
far = "tcp://HOST:7440"

[[backend]]
name = "ssd"
link = "ssd"
cost = 0.05
far = "file:/var/tmp?size=64G"
"#;

/// Backends and their costs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    version: u64,
    /// In the order of the file.
    #[serde(rename = "backend", default)]
    pub backends: Vec<Backend>,
}

/// A backend to choose from.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// What the advice calls it.
    pub name: String,
    /// The way to it: latency:bandwidth.
    pub link: String,
    /// Of a GiB, beside a GiB of local RAM.
    pub cost: f64,
    /// What `--far` is to say for it.
    #[serde(default)]
    pub far: Option<String>,
}

impl Backend {
    /// The link as it is simulated. It was checked when the file was read.
    pub fn model(&self) -> LinkModel {
        self.link.parse().expect("the file was checked")
    }
}

/// What a file for `--costs` says of far memory that has a URL: `URL=COST`, as `--costs` of a run takes it.
///
/// # Errors
/// As for [`Costs::read`].
pub fn stated(path: &Path) -> Result<Vec<String>, String> {
    let backends = Costs::read(Some(path))?.backends;
    Ok(backends.iter().filter_map(|backend| Some(format!("{}={}", backend.far.as_ref()?, backend.cost))).collect())
}

impl Costs {
    /// Reads a file, or the defaults.
    ///
    /// # Errors
    /// What is wrong, with the file and the line or the backend.
    pub fn read(path: Option<&Path>) -> Result<Costs, String> {
        let Some(path) = path else { return Costs::parse(DEFAULTS) };
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Costs::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Costs, String> {
        let costs: Costs = toml::from_str(text).map_err(|error| toml_error::describe(text, &error))?;
        if costs.version != VERSION {
            return Err(format!("version {} of cost files is not known; write version = {VERSION}", costs.version));
        }
        if !(1..=BACKENDS_MAX).contains(&costs.backends.len()) {
            return Err(format!("{} backends; write one [[backend]] to {BACKENDS_MAX}", costs.backends.len()));
        }
        for (index, backend) in costs.backends.iter().enumerate() {
            let name = &backend.name;
            if costs.backends[..index].iter().any(|other| other.name == *name) {
                return Err(format!("backend '{name}' is there twice"));
            }
            backend.link.parse::<LinkModel>().map_err(|why| format!("backend '{name}': {why}"))?;
            if !(backend.cost > 0.0 && backend.cost <= 1000.0) {
                let cost = backend.cost;
                return Err(format!("backend '{name}': {cost} is not a cost: write one above 0, where local RAM is 1"));
            }
        }
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_can_be_read() {
        let costs = Costs::read(None).unwrap();
        let names: Vec<&str> = costs.backends.iter().map(|backend| backend.name.as_str()).collect();
        assert_eq!(names, ["compressed", "numa", "node-25g", "node-10g", "ssd"]);
        assert!(costs.backends.iter().all(|backend| backend.model().bits_per_second > 0));
        for far in costs.backends.iter().filter_map(|backend| backend.far.as_ref()) {
            let read = hinterland_backend::parse(&far.replace("NODE", "1"));
            assert!(read.is_ok(), "{far}: {read:?}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_place() {
        let backend = |lines: &str| format!("version = 1\n[[backend]]\n{lines}");
        let cases = [
            ("version = 2\n[[backend]]\nname = \"a\"\nlink = \"ssd\"\ncost = 1".to_owned(), "version 2"),
            ("version = 1".to_owned(), "0 backends"),
            (backend("name = \"a\"\nlink = \"ssd\"\ncost = 0"), "'a': 0 is not a cost"),
            (backend("name = \"a\"\nlink = \"ssd\"\ncost = -1"), "'a': -1 is not a cost"),
            (backend("name = \"a\"\nlink = \"ssd\"\ncost = nan"), "'a': NaN is not a cost"),
            (backend("name = \"a\"\nlink = \"fast\"\ncost = 1"), "'a': 'fast' is no link"),
            (backend("name = \"a\"\nlink = \"ssd\""), "missing field `cost`"),
            (backend("name = \"a\"\nlink = \"ssd\"\nprice = 1"), "unknown field `price`"),
            ("version = 1\nno toml".to_owned(), "line 2: "),
            (String::new(), "line 1: missing field `version`"),
        ];
        for (text, words) in cases {
            let why = Costs::parse(&text).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let twice =
            backend("name = \"a\"\nlink = \"ssd\"\ncost = 1\n[[backend]]\nname = \"a\"\nlink = \"ssd\"\ncost = 1");
        assert!(Costs::parse(&twice).unwrap_err().contains("'a' is there twice"));
        let missing = Costs::read(Some(Path::new("/nowhere/costs.toml"))).unwrap_err();
        assert!(missing.starts_with("/nowhere/costs.toml: "), "{missing}");
    }
}
