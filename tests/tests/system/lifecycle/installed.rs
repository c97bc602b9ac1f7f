//! `./dev install` and `./dev uninstall`: what is put where, that it works from there and from elsewhere, and that nothing stays.

use anyhow::{Context, Result, ensure};
use hinterland_tests::installation::{build, ended, installed_files, listing, manual_pages, said, same, script};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::{self, Trial};
use hinterland_tests::{places, skips};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    vec![
        suite::trial("lifecycle::installed::prefix", skips::no_userfaultfd, prefix),
        suite::trial("lifecycle::installed::again", || None, again),
        suite::trial("lifecycle::installed::destdir", || None, destdir),
        suite::trial("lifecycle::installed::in_use", || None, in_use),
        suite::trial("lifecycle::installed::refusals", || None, refusals),
    ]
}

/// An empty directory for a test.
fn directory(test: &str) -> Result<std::path::PathBuf> {
    places::emptied(places::tests().join("installed").join(test))
}

fn install(prefix: &Path) -> Result<Command> {
    let mut command = script("install");
    command.arg("--from").arg(build()?).arg("--prefix").arg(prefix);
    Ok(command)
}

fn uninstall(prefix: &Path) -> Command {
    let mut command = script("install");
    command.arg("--uninstall").arg("--prefix").arg(prefix);
    command
}

/// Runs a program at a quarter of its memory with the command in a directory.
fn pages(test: &str, bin: &Path) -> Result<()> {
    let program = c_program("forked_figures", &[])?;
    for path in ["monitor", "inline"] {
        let mut command = Command::new(bin.join("hinterland"));
        command.args(["run", "--local", "16M", "--fault-path", path, "--stats", "stats.json", "--"]);
        command.arg(&program).args(["64", "2"]);
        let ended = Launch::of(&format!("installed-{test}-{path}"), command)?.run()?;
        ended.expect(0, "figures ok")?.expect_paging()?;
    }
    Ok(())
}

/// Everything is in its place and works, also after all of it was moved; somebody else's file stays, and nothing of ours does.
fn prefix() -> Result<()> {
    let root = directory("prefix")?;
    let prefix = root.join("opt");
    std::fs::create_dir_all(prefix.join("bin"))?;
    std::fs::write(prefix.join("bin/other"), "not ours")?;
    let before = listing(&root)?;
    let told = said(&mut install(&prefix)?)?;
    let installed = listing(&prefix)?;
    let own = ["/etc/default/hinterland-node", "/lib/hinterland/installed", "/share/zsh/site-functions/_hinterland"];
    let licences = ["/share/doc/hinterland/LICENSE-APACHE", "/share/doc/hinterland/LICENSE-MIT", "/bin/other"];
    let listed = own.iter().chain(&licences).map(|path| (*path).to_owned()).chain(installed_files()?);
    let wanted: BTreeSet<String> = listed.chain(manual_pages()?).collect();
    let files: BTreeSet<String> = installed.into_iter().filter(|path| !path.ends_with('/')).collect();
    same("installed", &files, &wanted)?;
    for file in installed_files()? {
        ensure!(told.contains(&format!("{}{file}\n", prefix.display())), "{file} is not told: {told}");
    }
    let unit = std::fs::read_to_string(prefix.join("lib/systemd/system/hinterland-node.service"))?;
    for line in ["ExecStart=PREFIX/bin/hinterland node ", "EnvironmentFile=-PREFIX/etc/default/hinterland-node\n"] {
        let line = line.replace("PREFIX", &prefix.display().to_string());
        ensure!(unit.contains(&line), "{line} is not in {unit}");
    }
    // The settings of the service are shown with the defaults that the unit has.
    let settings = std::fs::read_to_string(prefix.join("etc/default/hinterland-node"))?;
    let shown: Vec<&str> =
        settings.lines().filter_map(|line| line.strip_prefix('#')).filter(|line| !line.starts_with(' ')).collect();
    ensure!(shown.iter().any(|line| line.starts_with("CAPACITY=")), "{settings}");
    for line in shown {
        let name = line.split('=').next().unwrap_or_default();
        ensure!(
            unit.contains(&format!("\nEnvironment={line}\n")) && unit.contains(&format!("${{{name}}}")),
            "{line}: {unit}"
        );
    }
    let pc = std::fs::read_to_string(prefix.join("share/pkgconfig/hinterland.pc"))?;
    ensure!(pc.contains(&format!("prefix={}\n", prefix.display())), "{pc}");
    let python = std::fs::read_to_string(prefix.join("share/hinterland/python/pyproject.toml"))?;
    let rust = std::fs::read_to_string(prefix.join("share/hinterland/rust/Cargo.toml"))?;
    for (text, line) in [(&pc, "Version: "), (&python, "version = \""), (&rust, "version = \"")] {
        ensure!(text.contains(&format!("{line}{}", env!("CARGO_PKG_VERSION"))), "{text}");
    }
    pages("prefix", &prefix.join("bin"))?;
    let elsewhere = root.join("elsewhere");
    std::fs::rename(&prefix, &elsewhere)?;
    pages("moved", &elsewhere.join("bin"))?;
    std::fs::rename(&elsewhere, &prefix)?;
    said(&mut uninstall(&prefix))?;
    same("after the uninstall", &listing(&root)?, &before)
}

/// A second install replaces what it has and removes what it has no longer; settings that were changed stay, also at the end.
fn again() -> Result<()> {
    let prefix = directory("again")?.join("opt");
    said(&mut install(&prefix)?)?;
    let first = listing(&prefix)?;
    // An earlier version had one file more.
    let (list, old) = (prefix.join("lib/hinterland/installed"), prefix.join("share/doc/hinterland/old"));
    std::fs::write(&old, "")?;
    let noted = std::fs::read_to_string(&list)?;
    std::fs::write(&list, format!("{}  {}\n{noted}", "0".repeat(64), old.display()))?;
    let settings = prefix.join("etc/default/hinterland-node");
    std::fs::write(&settings, "CAPACITY=2G\n")?;
    std::fs::write(prefix.join("bin/hinterland"), "damaged")?;
    // A list that names what no install has put there is not followed.
    let noted = std::fs::read_to_string(&list)?;
    for foreign in ["/etc/passwd".into(), format!("{}/../other", prefix.display())] {
        std::fs::write(&list, format!("{}  {foreign}\n{noted}", "0".repeat(64)))?;
        let (code, told) = ended(&mut uninstall(&prefix))?;
        ensure!(code == Some(1) && told.contains(&format!("names {foreign}, which no install")), "{code:?}: {told}");
    }
    std::fs::write(&list, noted)?;
    let told = said(&mut install(&prefix)?)?;
    ensure!(told.contains("hinterland-node was changed and stays"), "{told}");
    same("after the second install", &listing(&prefix)?, &first)?;
    ensure!(std::fs::read_to_string(&settings)? == "CAPACITY=2G\n", "the settings were not kept");
    said(Command::new(prefix.join("bin/hinterland")).arg("--version"))?;
    let told = said(&mut uninstall(&prefix))?;
    ensure!(told.contains("hinterland-node was changed and stays"), "{told}");
    let left: BTreeSet<String> = ["/etc/", "/etc/default/", "/etc/default/hinterland-node"].map(str::to_owned).into();
    same("after the uninstall", &listing(&prefix)?, &left)
}

/// Below another root nothing but what would be there is made, settings of /usr are in /etc, and the paths are those without it.
fn destdir() -> Result<()> {
    let root = directory("destdir")?;
    said(install(Path::new("/usr"))?.env("DESTDIR", &root))?;
    let found = listing(&root)?;
    ensure!(installed_files()?.iter().all(|file| found.contains(&format!("/usr{file}"))), "{found:?}");
    ensure!(found.contains("/etc/default/hinterland-node") && !found.contains("/usr/etc/"), "{found:?}");
    let unit = std::fs::read_to_string(root.join("usr/lib/systemd/system/hinterland-node.service"))?;
    ensure!(unit.contains("EnvironmentFile=-/etc/default/hinterland-node\n"), "{unit}");
    let root_name = root.to_str().context("a name")?;
    for file in found.iter().filter(|file| !file.ends_with('/')) {
        let bytes = std::fs::read(format!("{root_name}{file}"))?;
        ensure!(
            !bytes.windows(root_name.len()).any(|window| window == root_name.as_bytes()),
            "{file} names {root_name}"
        );
    }
    said(uninstall(Path::new("/usr")).arg("--destdir").arg(&root))?;
    ensure!(listing(&root)?.is_empty(), "left: {:?}", listing(&root)?);
    Ok(())
}

/// A node that the service manager runs from the files keeps them until it is disabled; another one is none of this installation's.
fn in_use() -> Result<()> {
    let root = directory("in_use")?;
    let (prefix, stubs) = (root.join("opt"), root.join("stubs"));
    said(&mut install(&prefix)?)?;
    std::fs::create_dir(&stubs)?;
    let systemctl = stubs.join("systemctl");
    let path = format!("{}:{}", stubs.display(), std::env::var("PATH")?);
    let unit = |place: &Path, state: &str| -> Result<()> {
        let place = place.join("lib/systemd/system");
        let script = format!(
            "#!/bin/sh\nfor unit; do :; done\ncase $1 in\nshow) echo {}/$unit ;;\n{state}) exit 0 ;;\n*) exit 1 ;;\nesac\n",
            place.display()
        );
        std::fs::write(&systemctl, script)?;
        std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755))?;
        Ok(())
    };
    let installed = listing(&prefix)?;
    for state in ["is-active", "is-enabled"] {
        unit(&prefix, state)?;
        let (code, told) = ended(uninstall(&prefix).env("PATH", &path))?;
        let remedy = "hinterland-node.socket is in use: systemctl disable --now";
        ensure!(code == Some(1) && told.contains(remedy), "{state}: {code:?}: {told}");
        same(state, &listing(&prefix)?, &installed)?;
    }
    unit(&root.join("other"), "is-active")?;
    said(uninstall(&prefix).env("PATH", &path))?;
    ensure!(!prefix.exists(), "left: {:?}", listing(&prefix)?);
    Ok(())
}

/// A place from which nothing could run is refused before anything is written, and an uninstall of nothing says so.
fn refusals() -> Result<()> {
    let root = directory("refusals")?;
    let refused = |mut command: Command, why: &str| -> Result<()> {
        let (code, said) = ended(command.current_dir(&root))?;
        ensure!(code == Some(1) && said.starts_with("dev: ") && said.contains(why), "{command:?}: {code:?}: {said}");
        ensure!(listing(&root)?.is_empty(), "made: {:?}", listing(&root)?);
        Ok(())
    };
    for prefix in ["opt", "", "/", "/with a space", "/with:colon", "/with%percent"] {
        refused(install(Path::new(prefix))?, "--prefix")?;
    }
    let mut unknown = install(&root.join("x"))?;
    unknown.arg("--exec-prefix=/opt");
    refused(unknown, "no option '--exec-prefix=/opt' of ./dev install")?;
    refused(uninstall(&root.join("x")), "nothing was installed there by ./dev install")
}
