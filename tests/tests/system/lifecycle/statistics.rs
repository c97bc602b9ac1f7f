//! Statistics of runs that fork: nothing is counted once for each fork.

use anyhow::{Result, ensure};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{MIB, skips, suite};

/// Far memory of each kind that counts what goes in and out.
const FAR: [(&str, &str); 2] = [("compressed", "compressed:1G"), ("file", "file:/tmp?size=1G")];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for path in ["monitor", "inline"] {
        for (kind, far) in FAR {
            let name = format!("lifecycle::statistics::traffic::{kind}::{path}");
            trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || traffic(&name, path, far)));
        }
        let name = format!("lifecycle::statistics::shared_store::{path}");
        trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || shared_store(&name, path)));
    }
    trials
}

/// Bytes that went to far memory are those of the pages that were evicted to it, and bytes that came back those that were loaded,
/// however many children there were. Nothing is prefetched: of a window that arrives while a child ends, no figure but the traffic
/// tells.
fn traffic(test: &str, path: &str, far: &str) -> Result<()> {
    let program = c_program("forked_figures", &[])?.display().to_string();
    let flags = ["--local", "16M", "--fault-path", path, "--far", far, "--prefetch", "none"];
    let ended = Launch::new(test, &flags, &[&program, "48", "10"])?.run()?;
    ended.expect(0, "figures ok")?.expect_paging()?;
    let stats = ended.stats()?;
    let figure = |name: &str| stats[name].as_u64().unwrap_or(u64::MAX / 8192);
    let traffic = |name: &str| stats["backends"][0][name].as_u64().unwrap_or(u64::MAX);
    let (stored, evicted) = (traffic("bytes_in"), figure("evicted_dirty_pages") * 4096);
    ensure!(stored <= evicted + MIB, "{stored} bytes went out with {evicted} bytes of evicted pages");
    let (loaded, wanted) = (traffic("bytes_out"), figure("major_faults") * 4096);
    ensure!(loaded <= wanted + MIB, "{loaded} bytes came back for {wanted} bytes of pages");
    Ok(())
}

/// Ten children that live at one time share store and tables with their parent: these count once, not eleven times. Nobody touches
/// anything meanwhile: what a process writes, its store included, it has for itself.
///
/// A process counts the part that it had when it looked last. If each had looked when it began and never since, the eleven would count
/// 1 + 1/2 + … + 1/11 = 3.02 times what is there: how late they look is a matter of processors, and no verdict.
fn shared_store(test: &str, path: &str) -> Result<()> {
    let program = c_program("forked_figures", &[])?.display().to_string();
    let flags = ["--local", "16M", "--fault-path", path];
    let total = |name: &str, words: &[&str]| -> Result<u64> {
        let ended =
            Launch::new(&format!("{test}-{name}"), &flags, &[&[program.as_str(), "48"], words].concat())?.run()?;
        ended.expect(0, "figures ok")?;
        Ok(ended.stats()?["total_ram_peak_bytes"].as_u64().unwrap_or(u64::MAX))
    };
    let (alone, family) = (total("alone", &[])?, total("family", &["10", "at-once"])?);
    ensure!(family <= 3 * alone, "{alone} bytes alone, {family} bytes with ten children that share them");
    Ok(())
}
