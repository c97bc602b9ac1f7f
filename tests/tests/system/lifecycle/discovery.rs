//! Programs that find their memory nodes through etcd: nodes come and go while they run, and etcd does, too.

use super::nodes::{PATHS, Test, launch_with};
use super::pools;
use anyhow::{Context, Result, ensure};
use hinterland_testkit::etcd::Etcd;
use hinterland_tests::launch::{Launch, launcher};
use hinterland_tests::node::Node;
use hinterland_tests::suite::{Trial, wait_until};
use hinterland_tests::{Need, places, skips, suite};

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| {
        let obstacle = || skips::missing(&[Need::Program("etcd")]).or_else(skips::no_userfaultfd);
        let directory = name.clone();
        trials.push(suite::trial(name, obstacle, move || test(&directory)));
    };
    for path in PATHS {
        add(format!("lifecycle::discovery::joins::{path}"), Box::new(move |test| joins(test, path)));
        add(format!("lifecycle::discovery::restarted::{path}"), Box::new(move |test| restarted(test, path)));
        add(format!("lifecycle::discovery::exec::{path}"), Box::new(move |test| exec(test, path)));
    }
    add("lifecycle::discovery::leases".into(), Box::new(leases));
    add("lifecycle::discovery::refusals".into(), Box::new(refusals));
    trials
}

/// A pool in an etcd server of its own.
struct Pool {
    etcd: Etcd,
    url: String,
}

impl Pool {
    fn start(test: &str) -> Result<Pool> {
        let directory = places::tests().join("lifecycle").join(format!("{}-etcd", test.replace("::", "-")));
        let etcd = Etcd::start(&places::emptied(directory)?, &[])?;
        let url = etcd.pool("pool");
        Ok(Pool { etcd, url })
    }

    /// A node that is to be listed.
    fn node(&self, test: &str) -> Result<Node> {
        Node::start_with(test, "512M", &["--listen", "tcp://127.0.0.1:0", "--register", &self.url])
    }

    /// The nodes that are listed.
    fn listed(&self) -> Result<Vec<String>> {
        let output = launcher()?.args(["node", "list", "--json", &self.url]).output()?;
        ensure!(output.status.success(), "list: {}", String::from_utf8_lossy(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let nodes = document["nodes"].as_array().context("nodes")?;
        Ok(nodes.iter().filter_map(|node| Some(node["node"].as_str()?.to_owned())).collect())
    }

    /// Waits until these nodes are listed, and no others.
    fn wait_for(&self, nodes: &[&Node]) -> Result<()> {
        let mut wanted: Vec<&str> = nodes.iter().map(|node| &*node.url).collect();
        wanted.sort_unstable();
        wait_until("the list of nodes", || Ok(self.listed()? == wanted))
    }
}

fn is_used(node: &Node) -> Result<bool> {
    Ok(node.status()?["used_bytes"].as_u64() > Some(0))
}

/// A node that joins takes the place of one that is killed.
fn joins(test: &str, path: &str) -> Result<()> {
    let pool = Pool::start(test)?;
    let (first, second) = (pool.node(&format!("{test}-0"))?, pool.node(&format!("{test}-1"))?);
    pool.wait_for(&[&first, &second])?;
    let mut running = pools::start(test, path, &pool.url, "2", &["fork"])?;
    first.kill()?;
    let third = pool.node(&format!("{test}-2"))?;
    wait_until("the node that joined has pages", || is_used(&third))?;
    running.wait_for("round 5\n")?;
    pools::rest_until_rebuilt(&mut running)?;
    let stats = pools::finish(running)?;
    let backends = stats["backends"].as_array().context("backends")?;
    // Those that were there at the start stand first, by their URLs.
    ensure!(backends.len() == 3 && backends[2]["url"] == *third.url, "{stats}");
    ensure!(backends[2]["rebuilt_pages"].as_u64() > Some(0), "nothing was rebuilt there: {stats}");
    [second, third].into_iter().try_for_each(|node| node.end().map(drop))
}

/// etcd is killed under load; nodes and programs go on, and find each other when it is back.
fn restarted(test: &str, path: &str) -> Result<()> {
    let mut pool = Pool::start(test)?;
    let (first, second) = (pool.node(&format!("{test}-0"))?, pool.node(&format!("{test}-1"))?);
    pool.wait_for(&[&first, &second])?;
    let mut running = pools::start(test, path, &pool.url, "2", &["fork"])?;
    pool.etcd.kill();
    let third = pool.node(&format!("{test}-2"))?;
    running.wait_for("round 4\n")?;
    ensure!(!is_used(&third)?, "a node is used that nobody can know of");
    pool.etcd.start_again()?;
    pool.wait_for(&[&first, &second, &third])?;
    second.kill()?;
    wait_until("the node that joined has pages", || is_used(&third))?;
    let stats = pools::finish(running)?;
    let backends = stats["backends"].as_array().context("backends")?;
    let stayed = backends.iter().find(|backend| backend["url"] == *first.url).context("the node that stayed")?;
    ensure!(stayed["losses"] == 0, "a node was lost with etcd: {stats}");
    [first, third].into_iter().try_for_each(|node| node.end().map(drop))
}

/// Programs that are called by others find the nodes of now.
fn exec(test: &str, path: &str) -> Result<()> {
    let pool = Pool::start(test)?;
    let node = pool.node(&format!("{test}-0"))?;
    pool.wait_for(&[&node])?;
    let script = "seq 400000 | sort -R --random-source=/bin/sh -S 64M > mixed && sort -n -S 64M mixed > sorted && seq 400000 | cmp - sorted \
                  && echo sorted";
    let flags = ["--fault-path", path, "--far", &pool.url];
    let ended = launch_with(test, &flags, &["sh", "-c", script])?.run()?;
    ended.expect(0, "sorted")?;
    let stats = ended.stats()?;
    ensure!(stats["backends"][0]["bytes_in"].as_u64() > Some(8 << 20), "nothing went to the node: {stats}");
    node.wait_until_free()?;
    node.end().map(drop)
}

/// A node is off the list when it ends, and when its lease has ended that was killed.
fn leases(test: &str) -> Result<()> {
    let pool = Pool::start(test)?;
    let (first, second) = (pool.node(&format!("{test}-0"))?, pool.node(&format!("{test}-1"))?);
    pool.wait_for(&[&first, &second])?;
    let ended = first.end()?;
    ensure!(ended.stderr.contains("taken off the list"), "{}", ended.stderr);
    ensure!(pool.listed()? == [&*second.url]);
    second.kill()?;
    pool.wait_for(&[])
}

fn refusals(test: &str) -> Result<()> {
    let pool = Pool::start(test)?;
    let run = |name: &str, far: &[&str], words: &str| -> Result<()> {
        let flags: Vec<&str> = far.iter().flat_map(|far| ["--far", far]).collect();
        let ended = launch_with(&format!("{test}-{name}"), &flags, &["true"])?.run()?;
        ended.expect(125, "")?.expect_refusal(&["--far: ", words])?;
        Ok(())
    };
    run(
        "empty",
        &[&pool.url],
        &format!(
            "no node is listed there that can be used; start one with: hinterland node \
         --capacity 16G --register {}",
            pool.url
        ),
    )?;
    let node = pool.node(&format!("{test}-0"))?;
    pool.wait_for(&[&node])?;
    run("few", &[&format!("{}?replicas=2", pool.url)], "2 replicas need 2 nodes, and 1 can be used")?;
    run("twice", &[&pool.url, &pool.url], "is named twice")?;
    run("form", &["etcd://127.0.0.1:2379"], "write for example etcd://127.0.0.1:2379/pool")?;
    run("nobody", &["etcd://127.0.0.1:1/pool"], "etcd cannot be reached at 127.0.0.1:1: Connection refused")?;
    run("plain", &[&pool.url.replace("etcd:", "etcds:")], "give --tls CERT,KEY and --tls-ca CA")?;
    for (index, (flags, words)) in [
        (
            &["--listen", "unix:/tmp/hinterland-none.sock", "--register", &pool.url][..],
            "--register: a pool's nodes are for",
        ),
        (&["--listen", "tcp://0.0.0.0:0", "--register", &pool.url], "give --advertise tcp://HOST:PORT"),
        (&["--register", "etcd:/x"], "write for example etcd://127.0.0.1:2379/pool"),
    ]
    .into_iter()
    .enumerate()
    {
        let arguments = [&["node", "--capacity", "16M"], flags].concat();
        let ended = Launch::bare(&format!("{test}-node-{index}"), &arguments)?.run()?;
        ended.expect(125, "")?.expect_refusal(&[words])?;
    }
    node.end().map(drop)
}
