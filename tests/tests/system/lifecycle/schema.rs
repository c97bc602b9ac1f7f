//! What `--stats` and `ps --json` write is what their schemas say, by a validator of JSON Schema 2020-12, for runs of every kind.

use anyhow::{Result, ensure};
use hinterland_tests::launch::{Launch, c_program, launcher};
use hinterland_tests::node::{Node, pool_url};
use hinterland_tests::suite::{self, Trial};
use hinterland_tests::{Need, places, skips};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Reads lists of documents from standard input, and writes for each document what is wrong with it.
const VALIDATE: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
json.dump([[f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)] for document in json.load(sys.stdin)], sys.stdout)
"#;

const STATS: &str = "stats.schema.json";
const PS: &str = "ps.schema.json";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let obstacle = || skips::missing(&[Need::Python("jsonschema")]).or_else(skips::no_userfaultfd);
    vec![suite::trial("lifecycle::schema::stats", obstacle, stats), suite::trial("lifecycle::schema::ps", obstacle, ps)]
}

/// What is wrong with each of the documents, by a schema of docs/reference.
fn wrong(schema: &str, documents: &[Value]) -> Result<Vec<Vec<String>>> {
    let schema = places::repository().join("docs/reference").join(schema);
    let mut command = Command::new(places::python());
    command.args(["-c", VALIDATE]).arg(schema).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&serde_json::to_vec(documents)?)?;
    }
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the validator: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The figures of a run that ends with `code`.
fn figures(name: &str, code: i32, flags: &[&str], program: &[&str]) -> Result<Value> {
    let ended = Launch::new(&format!("schema-{name}"), flags, program)?.run()?;
    ended.expect(code, "")?.stats()
}

fn stats() -> Result<()> {
    let c = |name: &str, flags: &[&str]| c_program(name, flags).map(|path| path.display().to_string());
    let (forks, by_itself) = (c("forked_figures", &[])?, c("forked_figures", &["-static"])?);
    let forks = [forks.as_str(), "48", "4", "at-once"];
    let mut documents = vec![
        figures("plain", 0, &[], &["true"])?,
        figures("killed", 137, &[], &["sh", "-c", "kill -9 $$"])?,
        figures("unmanaged", 0, &["--allow-unmanaged"], &[&by_itself, "1"])?,
        figures("used-up", 125, &["--local", "16M", "--far", "file:/tmp?size=4M"], &forks[..2])?,
    ];
    let nodes = ["a", "b"].map(|name| Node::start(&format!("schema-{name}"), "256M"));
    let nodes = nodes.into_iter().collect::<Result<Vec<_>>>()?;
    let pool = pool_url(&nodes);
    for path in ["monitor", "inline"] {
        let small = ["--local", "16M", "--fault-path", path];
        let tree =
            |name: &str, flags: &[&str]| figures(&format!("{name}-{path}"), 0, &[&small[..], flags].concat(), &forks);
        let prefetching = ["--prefetch", "leap", "--read-ahead", "8", "--prefetch-cache", "4M"];
        documents.push(tree("tiers", &["--far", "compressed:8M", "--far", "file:/tmp?size=1G", "--encrypt"])?);
        documents.push(tree("prefetching", &prefetching)?);
        documents.push(tree("node", &["--far", &pool, "--replicas", "2"])?);
    }
    for (document, wrong) in documents.iter().zip(wrong(STATS, &documents)?) {
        ensure!(wrong.is_empty(), "{wrong:#?} in {document}");
    }
    // They were of every kind.
    let met = |what: &str, is: &dyn Fn(&Value) -> bool| -> Result<()> {
        ensure!(documents.iter().any(is), "no run {what}: the test tests less than it should");
        Ok(())
    };
    met("paged", &|figures| figures["major_faults"].as_u64() > Some(0))?;
    met("was ended by Hinterland", &|figures| figures["fatal"][0].is_string())?;
    met("was killed", &|figures| figures["signal"] == 9)?;
    met("was not managed", &|figures| figures["fault_path"] == "none" && figures["not_managed"].is_array())?;
    met("had children", &|figures| figures["processes"].as_array().is_some_and(|all| all.len() > 4))?;
    met("had threads and regions", &|figures| figures["threads"][0].is_object() && figures["regions"][0].is_object())?;
    met("had nodes", &|figures| figures["backends"][0]["removable"].is_boolean())?;
    refuses(&documents[documents.len() - 1])
}

/// A name too many, a name too few, a value of another kind and another version are each seen, at every level.
fn refuses(document: &Value) -> Result<()> {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = document.clone();
        change(&mut document);
        document
    };
    let without = |place: &'static str, name: &'static str| {
        changed(&move |document| {
            document.pointer_mut(place).and_then(Value::as_object_mut).and_then(|members| members.remove(name));
        })
    };
    let damaged = [
        changed(&|document| document["unknown"] = json!(1)),
        changed(&|document| document["backends"][0]["unknown"] = json!(1)),
        changed(&|document| document["processes"][0]["unknown"] = json!(1)),
        changed(&|document| document["regions"][0]["unknown"] = json!(1)),
        changed(&|document| document["major_faults"] = json!("7")),
        changed(&|document| document["stall_seconds"] = json!(-1)),
        changed(&|document| document["stats_version"] = json!(99)),
        without("", "forks"),
        without("/unmanaged", "own_bytes"),
        without("/fault_ns", "max"),
        without("/processes_others", "count"),
    ];
    for (damaged, wrong) in damaged.iter().zip(wrong(STATS, &damaged)?) {
        ensure!(wrong.len() == 1, "{wrong:?} in {damaged}");
    }
    Ok(())
}

/// A run that pages, and none.
fn ps() -> Result<()> {
    let hold = c_program("hold", &[])?.display().to_string();
    // Without prefetching, so that walks over its memory have major faults.
    let options = ["--local", "16M", "--prefetch", "none"];
    let mut running = Launch::new("schema-ps", &options, &[&hold, "48", "stay"])?.start()?;
    running.wait_for("ready")?;
    let listed = |runtime: &Path| -> Result<Value> {
        let output = launcher()?.args(["ps", "--json"]).env("XDG_RUNTIME_DIR", runtime).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let runtime = running.directory.join("tmp");
    suite::wait_until("a run that is listed", || Ok(listed(&runtime)?["runs"][0]["major_faults"].as_u64() > Some(0)))?;
    let documents = [listed(&runtime)?, listed(&running.directory)?];
    for (document, wrong) in documents.iter().zip(wrong(PS, &documents)?) {
        ensure!(wrong.is_empty(), "{wrong:#?} in {document}");
    }
    let mut damaged = documents[0].clone();
    damaged["runs"][0]["far_bytes"] = json!("7");
    ensure!(wrong(PS, &[damaged])?[0].len() == 1, "a wrong type is not seen");
    Ok(())
}
