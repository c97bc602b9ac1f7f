//! Certificates and keys that are renewed while nodes and programs go on: half written, by SIGHUP or by themselves; those that have
//! expired, at the start; how long they are good.

use super::nodes::{PATHS, Test, launch_with, trial};
use super::operators::two_more_rounds;
use super::secrets::metrics;
use super::secured::key_file;
use anyhow::{Context, Result, ensure};
use hinterland_tests::authority::{Authority, Certified, EXPIRED, VALID, write_secret};
use hinterland_tests::launch::{Running, c_program, launcher};
use hinterland_tests::node::{Node, pool_url};
use hinterland_tests::places;
use hinterland_tests::suite::{self, Trial};
use nix::sys::signal::Signal;
use rcgen::{KeyPair, PublicKeyData};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        add(format!("lifecycle::renewals::in_use::{path}"), Box::new(move |test| in_use(test, path)));
        add(format!("lifecycle::renewals::reconnects::{path}"), Box::new(move |test| reconnects(test, path)));
    }
    add("lifecycle::renewals::half_written".into(), Box::new(half_written));
    add("lifecycle::renewals::key".into(), Box::new(key));
    add("lifecycle::renewals::operators".into(), Box::new(operators));
    add("lifecycle::renewals::nothing_to_read".into(), Box::new(nothing_to_read));
    add("lifecycle::renewals::expired".into(), Box::new(expired));
    add("lifecycle::renewals::time_left".into(), Box::new(time_left));
    trials
}

/// A place where somebody's certificate, key and CA lie, whoever they are from at the time.
struct Place(PathBuf);

impl Place {
    fn new(test: &str, who: &str) -> Result<Place> {
        let name = format!("{}-{who}-files", test.replace("::", "-"));
        Ok(Place(places::emptied(places::tests().join("lifecycle").join(name))?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What `--tls` and `--tls-ca` take.
    fn flags(&self) -> [String; 4] {
        let text = |name| self.path(name).display().to_string();
        ["--tls".into(), format!("{},{}", text("own.pem"), text("own.key")), "--tls-ca".into(), text("ca.pem")]
    }

    /// Puts others in the place of all, each at once.
    fn renew(&self, own: &Certified, ca: &str) -> Result<()> {
        let (certificate, key) = own.tls.split_once(',').context("a pair")?;
        for (from, name) in [(certificate, "own.pem"), (key, "own.key"), (ca, "ca.pem")] {
            let new = self.path("new");
            fs::copy(from, &new)?;
            fs::rename(new, self.path(name))?;
        }
        Ok(())
    }
}

fn as_str(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

fn node_at(test: &str, listen: &str, flags: &[&str]) -> Result<Node> {
    Node::start_with(test, "1G", &[&["--listen", listen], flags].concat())
}

fn node(test: &str, flags: &[&str]) -> Result<Node> {
    node_at(test, "tcp://127.0.0.1:0", flags)
}

fn log_of(directory: &Path) -> Result<String> {
    Ok(fs::read_to_string(directory.join("stderr"))?)
}

/// Waits until the node has said so, `count` times.
fn wait_for_log(node: &Node, words: &str, count: usize) -> Result<()> {
    suite::wait_until(words, || Ok(log_of(node.directory())?.matches(words).count() >= count))
}

/// The fingerprint by which a node's log calls who shows this certificate.
fn fingerprint(own: &Certified) -> Result<String> {
    let key = KeyPair::try_from(own.key_der.as_slice())?;
    Ok(hex::encode(Sha256::digest(key.subject_public_key_info())))
}

/// `hinterland node status` with these flags: what it says, and whether it was let in.
fn asks(node: &Node, flags: &[&str]) -> Result<(bool, String)> {
    let output = launcher()?.args(["node", "status", &node.url]).args(flags).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), said))
}

fn enough(running: Running) -> Result<()> {
    fs::write(running.directory.join("enough"), "")?;
    let ended = running.end()?;
    ended.expect(0, "round ")?.expect_paging()?;
    ensure!(!ended.stdout.contains("WRONG"), "{}", ended.stdout);
    Ok(())
}

const READ_AGAIN: &str = "were read again: new connections use them";

/// Both sides are renewed while a program uses the node and forks: who is connected stays, and new connections of the program and its
/// children show the new certificate. Nobody is told but by the files.
fn in_use(test: &str, path: &str) -> Result<()> {
    let ca = Authority::new(test, "ca")?;
    let (ours, theirs) = (Place::new(test, "node")?, Place::new(test, "program")?);
    ours.renew(&ca.sign("node-1", VALID)?, &ca.ca())?;
    let before = ca.sign("program-1", VALID)?;
    theirs.renew(&before, &ca.ca())?;
    let node = node(test, &[&["--verbose"], &as_str(&ours.flags())[..]].concat())?;
    let program = c_program("rounds", &[])?.display().to_string();
    let identity = theirs.flags();
    let far = node.patient_url();
    let flags = [&["--fault-path", path, "--far", &far], &as_str(&identity)[..]].concat();
    let mut running = launch_with(&format!("{test}-run"), &flags, &[&program, "24", "fork"])?.start()?;
    two_more_rounds(&mut running)?;
    let after = ca.sign("program-2", VALID)?;
    theirs.renew(&after, &ca.ca())?;
    ours.renew(&ca.sign("node-2", VALID)?, &ca.ca())?;
    wait_for_log(&node, READ_AGAIN, 1)?;
    // Each second round forks, and the child connects.
    wait_for_log(&node, &format!("certificate {}", fingerprint(&after)?), 1)?;
    two_more_rounds(&mut running)?;
    ensure!(log_of(node.directory())?.contains(&fingerprint(&before)?), "the first certificate is not in the log");
    enough(running)?;
    let log = node.end()?.stderr;
    ensure!(!log.contains("WARN"), "the node complains: {log}");
    Ok(())
}

/// All that both sides know of each other is replaced. Connections go on; a node that comes back knows the new ones alone, and the
/// program finds it with them.
fn reconnects(test: &str, path: &str) -> Result<()> {
    let (old, new) = (Authority::new(test, "old-ca")?, Authority::new(test, "new-ca")?);
    let (ours, theirs) = (Place::new(test, "nodes")?, Place::new(test, "program")?);
    ours.renew(&old.sign("node", VALID)?, &old.ca())?;
    theirs.renew(&old.sign("program", VALID)?, &old.ca())?;
    let (identity, client) = (ours.flags(), theirs.flags());
    let start = |n: usize| node(&format!("{test}-{n}"), &as_str(&identity));
    let mut nodes = vec![start(0)?, start(1)?];
    let program = c_program("rounds", &[])?.display().to_string();
    let far = pool_url(&nodes);
    let flags = [&["--fault-path", path, "--replicas", "2", "--far", &far], &as_str(&client)[..]].concat();
    let mut running = launch_with(&format!("{test}-run"), &flags, &[&program, "24"])?.start()?;
    two_more_rounds(&mut running)?;
    ours.renew(&new.sign("node", VALID)?, &new.ca())?;
    theirs.renew(&new.sign("program", VALID)?, &new.ca())?;
    for node in &nodes {
        node.signal(Signal::SIGHUP)?;
        wait_for_log(node, READ_AGAIN, 1)?;
    }
    two_more_rounds(&mut running)?;
    for n in 0..2 {
        let gone = nodes.remove(0);
        let url = gone.url.clone();
        gone.kill()?;
        let status = |node: &Node| -> Result<serde_json::Value> {
            let (is_in, said) = asks(node, &[&["--json"], &as_str(&client)[..]].concat())?;
            ensure!(is_in, "{said}");
            Ok(serde_json::from_str(&said)?)
        };
        // What the program said before the loss holds for a moment.
        suite::wait_until("the other node has the only copies", || Ok(status(&nodes[0])?["removable"] == false))?;
        two_more_rounds(&mut running)?;
        nodes.push(node_at(&format!("{test}-{n}-again"), &url, &as_str(&identity))?);
        suite::wait_until("every page of the other node is on the one that has come back", || {
            let status = status(&nodes[0])?;
            Ok(status["sessions"] == 1 && status["used_bytes"].as_u64() > Some(0) && status["removable"] == true)
        })?;
    }
    two_more_rounds(&mut running)?;
    enough(running)?;
    for node in nodes {
        node.end()?;
    }
    Ok(())
}

/// What does not fit together changes nothing, is said with file and reason, once, also without a signal; what fits is taken.
fn half_written(test: &str) -> Result<()> {
    let (ca, other) = (Authority::new(test, "ca")?, Authority::new(test, "other-ca")?);
    let (ours, theirs) = (Place::new(test, "node")?, Place::new(test, "program")?);
    ours.renew(&ca.sign("node", VALID)?, &ca.ca())?;
    theirs.renew(&ca.sign("program", VALID)?, &ca.ca())?;
    let (identity, client) = (ours.flags(), theirs.flags());
    let node = node(test, &as_str(&identity))?;
    let fresh = ca.sign("node-2", VALID)?;
    let (certificate, key) = fresh.tls.split_once(',').context("a pair")?;
    let pem = fs::read(certificate)?;
    let cannot = "certificates and keys cannot be read again: those that were read before stay in use";
    fs::write(ours.path("own.pem"), &pem[..pem.len() / 2])?;
    let half = format!("{}: there is no certificate here", ours.path("own.pem").display());
    node.signal(Signal::SIGHUP)?;
    wait_for_log(&node, &half, 1)?;
    ensure!(log_of(node.directory())?.contains(cannot), "'{cannot}' is not in the log");
    ensure!(asks(&node, &as_str(&client))?.0, "with a certificate that is half written the node lets nobody in");
    // By itself, for the certificate is whole and the key is another's.
    fs::write(ours.path("own.pem"), &pem)?;
    wait_for_log(&node, &format!("this is not the key of {}", ours.path("own.pem").display()), 1)?;
    ensure!(asks(&node, &as_str(&client))?.0, "with another's key the node lets nobody in");
    write_secret(&ours.path("own.key"), &fs::read(key)?)?;
    wait_for_log(&node, READ_AGAIN, 1)?;
    ensure!(asks(&node, &as_str(&client))?.0, "with a whole pair the node lets nobody in");
    // Another CA of programs: who was known is not any more.
    fs::copy(other.ca(), ours.path("ca.pem"))?;
    node.signal(Signal::SIGHUP)?;
    wait_for_log(&node, READ_AGAIN, 2)?;
    let (is_in, said) = asks(&node, &as_str(&client))?;
    ensure!(!is_in && said.contains("no CA that it was given has signed it"), "{said}");
    let log = node.end()?.stderr;
    ensure!(log.contains("expires=\"2120-01-01T00:00:00Z\""), "the new expiry is not in the log: {log}");
    ensure!(log.matches(cannot).count() == 2, "each thing that is wrong is to be said once: {log}");
    Ok(())
}

/// The same with a key file, and for `hinterland run`: its launcher says what is wrong with the file.
fn key(test: &str) -> Result<()> {
    let (path, other) = (key_file(test, 1)?, key_file(test, 2)?);
    let node = node(test, &["--key-file", &path])?;
    let program = c_program("rounds", &[])?.display().to_string();
    let far = node.patient_url();
    let flags = ["--far", &far, "--key-file", &path];
    let mut running = launch_with(&format!("{test}-run"), &flags, &[&program, "24"])?.start()?;
    two_more_rounds(&mut running)?;
    fs::write(&path, "short")?;
    let short = "5 bytes are too few for a key";
    suite::wait_until("the launcher says what is wrong", || {
        let said = log_of(&running.directory)?;
        Ok(said.contains(short) && said.contains("what was read before stays in use"))
    })?;
    node.signal(Signal::SIGHUP)?;
    wait_for_log(&node, short, 1)?;
    two_more_rounds(&mut running)?;
    fs::write(&path, fs::read(&other)?)?;
    wait_for_log(&node, "the key file was read again: new connections use it", 1)?;
    ensure!(asks(&node, &["--key-file", &other])?.0, "who has the new key is not let in");
    two_more_rounds(&mut running)?;
    enough(running)?;
    node.end()?;
    Ok(())
}

/// Operators who are named, or not any more, while the node runs.
fn operators(test: &str) -> Result<()> {
    let ca = Authority::new(test, "ca")?;
    let place = Place::new(test, "node")?;
    let (ours, [one, other]) = (ca.sign("node", VALID)?, [ca.sign("one", VALID)?, ca.sign("other", VALID)?]);
    let certificate = |own: &Certified| own.tls.split(',').next().unwrap_or_default().to_owned();
    let named = place.path("operators.pem");
    fs::copy(certificate(&one), &named)?;
    let (ca, named_flag) = (ca.ca(), named.display().to_string());
    let node = node(test, &["--tls", &ours.tls, "--tls-ca", &ca, "--operators", &named_flag])?;
    let drains = |own: &Certified| -> Result<bool> {
        let drain = ["node", "drain", &node.url, "--end", "--tls", &own.tls, "--tls-ca", &ca];
        Ok(launcher()?.args(drain).output()?.status.success())
    };
    ensure!((drains(&one)?, drains(&other)?) == (true, false), "the first operator is not the only one");
    fs::copy(certificate(&other), &named)?;
    node.signal(Signal::SIGHUP)?;
    wait_for_log(&node, READ_AGAIN, 1)?;
    ensure!((drains(&one)?, drains(&other)?) == (false, true), "the second operator is not the only one");
    node.end()?;
    Ok(())
}

/// SIGHUP ends no node: one without certificates says that there are none, one with files that have not changed says that.
fn nothing_to_read(test: &str) -> Result<()> {
    let plain = Node::start(&format!("{test}-plain"), "64M")?;
    plain.signal(Signal::SIGHUP)?;
    wait_for_log(&plain, "there are no certificates or keys to read again", 1)?;
    let key = key_file(test, 1)?;
    let keyed = node(&format!("{test}-keyed"), &["--key-file", &key])?;
    keyed.signal(Signal::SIGHUP)?;
    wait_for_log(&keyed, "were read again: nothing has changed", 1)?;
    for (node, flags) in [(plain, vec![]), (keyed, vec!["--key-file", &key])] {
        ensure!(asks(&node, &flags)?.0, "the node is gone");
        node.end()?;
    }
    Ok(())
}

/// A node and a run whose own certificate has expired, or is not valid yet, say so at their start, with file and date; a renewed one is
/// taken.
fn expired(test: &str) -> Result<()> {
    let ca = Authority::new(test, "ca")?;
    let place = Place::new(test, "node")?;
    place.renew(&ca.sign("late", EXPIRED)?, &ca.ca())?;
    let identity = place.flags();
    let late = node(test, &as_str(&identity))?;
    let own = place.path("own.pem").display().to_string();
    let is_said = |node: &Node, words: &str| -> Result<()> {
        let log = log_of(node.directory())?;
        let line = log.lines().find(|line| line.contains(&own) && line.contains(words));
        ensure!(line.is_some_and(|line| line.contains("WARN")), "'{words}' is not in the log: {log}");
        Ok(())
    };
    wait_for_log(&late, "has expired", 1)?;
    is_said(&late, "has expired, 2021-01-01T00:00:00Z: programs refuse it; put a renewed one there")?;
    let client = ca.sign("client", VALID)?.tls;
    let client = ["--tls", &client, "--tls-ca", &ca.ca()];
    let (is_in, said) = asks(&late, &client)?;
    ensure!(!is_in && said.contains("its certificate has expired"), "{said}");
    place.renew(&ca.sign("renewed", VALID)?, &ca.ca())?;
    late.signal(Signal::SIGHUP)?;
    wait_for_log(&late, READ_AGAIN, 1)?;
    ensure!(asks(&late, &client)?.0, "the renewed certificate does not help");
    // A program's.
    for (name, years, words) in [
        ("late-program", EXPIRED, "has expired, 2021-01-01T00:00:00Z: memory nodes refuse it"),
        ("early-program", (2100, 2120), "is not valid before 2100-01-01T00:00:00Z: memory nodes refuse it"),
    ] {
        let own = ca.sign(name, years)?.tls;
        let flags = ["--far", &late.url, "--tls", &own, "--tls-ca", &ca.ca()];
        let ended = launch_with(&format!("{test}-{name}"), &flags, &["true"])?.run()?;
        ended.expect(125, "")?;
        let warning = ended.stderr.lines().find(|line| line.contains("warning: ") && line.contains(words));
        ensure!(
            warning.is_some_and(|line| line.contains(&format!("{name}.pem"))),
            "'{words}' is not said: {}",
            ended.stderr
        );
    }
    late.end()?;
    place.renew(&ca.sign("early", (2100, 2120))?, &ca.ca())?;
    let early = node(&format!("{test}-early"), &as_str(&identity))?;
    wait_for_log(&early, "is not valid before", 1)?;
    is_said(&early, "is not valid before 2100-01-01T00:00:00Z: programs refuse it; look at this machine's clock")?;
    early.end()?;
    Ok(())
}

/// `status` and the figures say for how long certificates are good, those of the CA too; a run's own expiry is no matter of theirs.
fn time_left(test: &str) -> Result<()> {
    let ca = Authority::new(test, "ca")?;
    let place = Place::new(test, "node")?;
    place.renew(&ca.sign("node", VALID)?, &ca.ca())?;
    let identity = place.flags();
    let node = node(test, &[&["--metrics", "127.0.0.1:0"], &as_str(&identity)[..]].concat())?;
    let until = 4_733_510_400; // 2120-01-01
    let now = || -> Result<i64> { Ok(i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_secs())?) };
    let gauge = |metrics: &str, labels: &str| -> Result<i64> {
        let begin = format!("hinterland_node_certificate_left_seconds{{kind=\"{labels}");
        let line = metrics.lines().find(|line| line.starts_with(&begin));
        let value = line.and_then(|line| line.rsplit(' ').next()).with_context(|| format!("no {begin}: {metrics}"))?;
        Ok(value.parse()?)
    };
    let before = now()?;
    let figures = String::from_utf8(metrics(&node)?)?;
    let own = gauge(&figures, "own\",number=\"0\",subject=\"CN=rcgen self signed cert\"")?;
    ensure!((until - now()?..=until - before).contains(&own), "{own} seconds are left until 2120");
    ensure!(gauge(&figures, "ca\",number=\"1\",subject=\"")? > own, "{figures}");
    let client = ca.sign("client", VALID)?.tls;
    let client = ["--tls", &client, "--tls-ca", &ca.ca()];
    let (is_in, said) = asks(&node, &[&["--json"], &client[..]].concat())?;
    ensure!(is_in, "{said}");
    let status: serde_json::Value = serde_json::from_str(&said)?;
    let [own, root] = [&status["certificates"][0], &status["certificates"][1]];
    ensure!(own["kind"] == "own" && own["subject"] == "CN=rcgen self signed cert" && root["kind"] == "ca", "{said}");
    let left = own["left_seconds"].as_i64().context("a number")?;
    ensure!((until - now()?..=until - before).contains(&left), "{left} seconds are left until 2120");
    let table = asks(&node, &client)?.1;
    ensure!(
        table.contains("own certificate CN=rcgen self signed cert: 3") && table.contains(" days left\n"),
        "{table}"
    );
    // One that has expired since.
    place.renew(&ca.sign("late", EXPIRED)?, &ca.ca())?;
    node.signal(Signal::SIGHUP)?;
    wait_for_log(&node, READ_AGAIN, 1)?;
    let log = log_of(node.directory())?;
    ensure!(log.contains("has expired, 2021-01-01T00:00:00Z"), "nothing is said: {log}");
    let figures = String::from_utf8(metrics(&node)?)?;
    ensure!(gauge(&figures, "own\"")? < 0, "{figures}");
    node.end()?;
    // Without certificates there is nothing to say.
    let plain = Node::start_with(
        &format!("{test}-plain"),
        "64M",
        &["--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"],
    )?;
    ensure!(!String::from_utf8(metrics(&plain)?)?.contains("certificate"), "figures of no certificate");
    ensure!(plain.status()?["certificates"].as_array().is_some_and(Vec::is_empty), "{}", plain.status()?);
    plain.end()?;
    Ok(())
}
