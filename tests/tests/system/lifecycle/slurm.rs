//! `hinterland submit` on a real Slurm: one machine, on loopback, in a directory of its own. Only with `--full`, as root, where Slurm is installed
//! (packages slurm-wlm and munge of Debian).

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::launcher;
use hinterland_tests::suite::{self, Trial, wait_until};
use hinterland_tests::{places, skips};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let installed = || {
        let missing = ["munged", "slurmctld", "slurmd", "sbatch"].into_iter().find(|name| skips::find(name).is_none());
        missing.map(|name| format!("{name} is not installed (packages slurm-wlm and munge)"))
    };
    let obstacle = move || skips::not_full().or_else(skips::not_root).or_else(installed).or_else(skips::no_userfaultfd);
    vec![suite::trial("lifecycle::slurm::submitted", obstacle, || submitted("lifecycle-slurm-submitted"))]
}

/// A cluster of this machine, which ends with this.
struct Slurm {
    directory: PathBuf,
    daemons: Vec<Child>,
}

impl Slurm {
    fn start(test: &str) -> Result<Slurm> {
        let directory = places::emptied(places::tests().join("lifecycle").join(test))?;
        let mut slurm = Slurm { directory, daemons: Vec::new() };
        for name in ["state", "spool", "switches", "warm"] {
            fs::create_dir(slurm.at(name))?;
        }
        // Between its hosts, of which there is one.
        fs::write(slurm.at("key"), [7; 1024])?;
        fs::set_permissions(slurm.at("key"), fs::Permissions::from_mode(0o400))?;
        fs::write(slurm.at("slurm.conf"), slurm.configuration()?)?;
        for script in ["prolog", "features"] {
            let path = places::repository().join("packaging/slurm").join(script);
            let set = ["SWITCHES", "WARM"]
                .map(|name| format!("HINTERLAND_{name}={}", slurm.at(&name.to_lowercase()).display()));
            let configuration = slurm.at("slurm.conf").display().to_string();
            slurm.script(
                script,
                &format!("export {} SLURM_CONF={configuration}\nexec {}", set.join(" "), path.display()),
            )?;
        }
        slurm.script("switches/disk", &format!("echo $1 >> {}", slurm.at("switched").display()))?;
        let at = |name: &str| format!("={}", slurm.at(name).display());
        let files = [("key-file", "key"), ("socket", "socket"), ("pid-file", "munged.pid"), ("seed-file", "seed")];
        let mut flags = vec!["--foreground".to_owned(), "--force".into(), "--syslog".into()];
        flags.extend(files.map(|(flag, file)| format!("--{flag}{}", at(file))));
        slurm.daemon("munged", &flags)?;
        wait_until("munge's socket", || Ok(slurm.at("socket").exists()))?;
        slurm.daemon("slurmctld", &["-D".into(), "-i".into()])?;
        slurm.daemon("slurmd", &["-D".into()])?;
        wait_until("the machine", || Ok(slurm.said("sinfo", &["-h", "-o", "%t"]).is_ok_and(|state| state == "idle")))?;
        // As Slurm's health check does after a while.
        ensure!(slurm.command(&slurm.at("features").display().to_string()).status()?.success(), "features");
        Ok(slurm)
    }

    fn configuration(&self) -> Result<String> {
        let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let name = name.trim().split('.').next().unwrap_or_default();
        // The kernel gives ports out in turn: one that was just free is not given again soon.
        let free = || Ok::<_, std::io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        let (controller, machine, at) = (free()?, free()?, |file: &str| self.at(file).display().to_string());
        Ok(format!(
            "ClusterName=test\nSlurmctldHost={name}(127.0.0.1)\nSlurmUser=root\nAuthType=auth/munge\nAuthInfo=socket={socket}\n\
             CredType=cred/munge\nStateSaveLocation={state}\nSlurmdSpoolDir={spool}\nSlurmctldPidFile={controller_pid}\n\
             SlurmdPidFile={machine_pid}\nSlurmctldPort={controller}\nSlurmdPort={machine}\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nMpiDefault=none\n\
             ReturnToService=2\nProlog={prolog}\nPrologFlags=Alloc\n\
             NodeName={name} NodeAddr=127.0.0.1 CPUs=1 RealMemory=1000 Feature=far-disk,warm-disk,far-none,warm-none State=UNKNOWN\n\
             PartitionName=all Nodes={name} Default=YES State=UP\n",
            socket = at("socket"),
            state = at("state"),
            spool = at("spool"),
            controller_pid = at("slurmctld.pid"),
            machine_pid = at("slurmd.pid"),
            prolog = at("prolog"),
        ))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn script(&self, name: &str, commands: &str) -> Result<()> {
        fs::write(self.at(name), format!("#!/bin/sh\n{commands}\n"))?;
        Ok(fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755))?)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("SLURM_CONF", self.at("slurm.conf")).current_dir(&self.directory).stdin(Stdio::null());
        command
    }

    fn daemon(&mut self, name: &str, flags: &[String]) -> Result<()> {
        let log = fs::File::create(self.at(&format!("{name}.log")))?;
        let path = skips::find(name).with_context(|| format!("{name} was there"))?;
        let mut command = self.command(&path.display().to_string());
        self.daemons.push(command.args(flags).stdout(log.try_clone()?).stderr(log).spawn()?);
        Ok(())
    }

    /// What a command of Slurm prints.
    fn said(&self, name: &str, words: &[&str]) -> Result<String> {
        let output = self.command(name).args(words).output()?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// `hinterland submit` with a trace and a slowdown that far memory is sure to keep.
    fn submit(&self, words: &[&str], program: &[&str]) -> Result<String> {
        let mut command = launcher()?;
        command.env("SLURM_CONF", self.at("slurm.conf")).current_dir(&self.directory).arg("submit");
        command
            .args(["--trace", "sort.trace", "--costs", "costs.toml", "--slowdown", "10"])
            .args(words)
            .arg("--")
            .args(program);
        let output = command.output()?;
        ensure!(output.status.success(), "submit: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        while let Some(mut daemon) = self.daemons.pop() {
            let _ = kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM);
            let _ = daemon.wait();
        }
    }
}

/// A job finds its far memory on a machine that was switched to it once, and its program does what it does without Slurm. Where a switch fails, the
/// job waits and the machine is drained.
fn submitted(test: &str) -> Result<()> {
    let slurm = Slurm::start(test)?;
    let far = format!("file:{}?size=1G", slurm.directory.display());
    let backend = |name: &str, cost: f64| {
        format!("[[backend]]\nname = \"{name}\"\nlink = \"ssd\"\ncost = {cost}\nfar = \"{far}\"\n")
    };
    fs::write(slurm.at("costs.toml"), format!("version = 1\n{}{}", backend("disk", 0.05), backend("none", 0.5)))?;
    let lines: String =
        (0..400_000_u64).map(|line| format!("{:020}{line:060}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    fs::write(slurm.at("lines"), lines)?;
    let sort = |output: &'static str| ["sort", "--parallel=1", "-S", "256M", "-o", output, "lines"];
    let mut trace = launcher()?;
    trace.current_dir(&slurm.directory).args(["trace", "--quiet", "-o", "sort.trace", "--"]).args(sort("native"));
    ensure!(trace.status()?.success(), "trace");
    let asked = slurm.submit(&["--dry-run"], &sort("sorted"))?;
    ensure!(asked.contains("--constraint=far-disk ") && !asked.contains("--prefer"), "before a switch: {asked}");
    for round in 1..=2 {
        slurm.submit(&["--sbatch=--wait", "--sbatch=--output=job.out"], &sort("sorted"))?;
        let out = fs::read_to_string(slurm.at("job.out"))?;
        ensure!(fs::read(slurm.at("native"))? == fs::read(slurm.at("sorted"))?, "round {round}: other lines; {out}");
        ensure!(out.contains("far-memory") || out.contains("file:"), "round {round}: no run with far memory: {out}");
        fs::remove_file(slurm.at("sorted"))?;
        ensure!(fs::read_to_string(slurm.at("switched"))? == "start\n", "round {round}: it was switched once");
        ensure!(slurm.said("sinfo", &["-h", "-o", "%b"])? == "far-disk,warm-disk,far-none", "round {round}");
        let asked = slurm.submit(&["--dry-run"], &sort("sorted"))?;
        ensure!(asked.contains("--prefer=warm-disk"), "after a switch: {asked}");
    }
    slurm.submit(&["--backend", "none"], &sort("sorted"))?;
    wait_until("a drained machine", || Ok(slurm.said("sinfo", &["-h", "-o", "%t"])?.starts_with("dr")))?;
    ensure!(!slurm.at("sorted").exists() && slurm.said("squeue", &["-h", "-o", "%j"])? == "sort", "the job waits");
    slurm.said("scancel", &["--name=sort"]).map(drop)
}
