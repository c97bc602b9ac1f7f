//! The Debian package: installed twice, run and removed in a test root, a directory with nothing but the system libraries that it says it needs.

use anyhow::{Context, Result, bail, ensure};
use hinterland_tests::installation::{build, installed_files, listing, manual_pages, said, same, script};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::{self, Trial};
use hinterland_tests::{places, skips};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The settings that a package manager keeps.
const SETTINGS: &str = "/etc/default/hinterland-node";

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    vec![suite::trial("lifecycle::installed::package", obstacle, life)]
}

fn obstacle() -> Option<String> {
    let tools = ["dpkg", "dpkg-deb", "dpkg-shlibdeps", "unshare", "ldd"];
    let missing = tools.into_iter().find(|name| skips::find(name).is_none());
    let missing = missing.map(|name| format!("{name} is not installed (./dev setup)"));
    missing.or_else(skips::not_root).or_else(skips::no_userfaultfd).or_else(no_mounts)
}

/// Why nothing can be mounted here, as in some containers.
fn no_mounts() -> Option<String> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "mount", "-t", "proc", "proc", "/proc"]);
    let works = command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    (!works).then(|| "needs to mount /proc in a namespace of its own".into())
}

/// A root directory for dpkg and chroot.
struct Root(PathBuf);

impl Root {
    /// With a shell, a program, and the libraries of both.
    fn new(program: &Path) -> Result<Root> {
        let root = Root(places::emptied(places::tests().join("packaged/root"))?);
        for directory in ["bin", "dev", "proc", "tmp", "var/tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
            std::fs::create_dir_all(root.0.join(directory))?;
        }
        // What scripts write there goes nowhere, if not as usual.
        std::fs::write(root.at("/dev/null"), "")?;
        root.copy(Path::new("/bin/sh"), "/bin/sh")?;
        root.copy(program, "/bin/program")?;
        Ok(root)
    }

    /// Copies a file, and the libraries that the loader finds for it, each to where it is.
    fn copy(&self, file: &Path, to: &str) -> Result<()> {
        self.put(file, to)?;
        self.libraries(file)
    }

    fn put(&self, file: &Path, to: &str) -> Result<()> {
        let place = self.at(to);
        std::fs::create_dir_all(place.parent().context("a directory")?)?;
        places::copy_program(file, &place)
    }

    fn libraries(&self, file: &Path) -> Result<()> {
        let found = said(Command::new("ldd").arg(file))?;
        let paths = found.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
        for path in paths.filter(|path| Path::new(path).exists()) {
            self.put(Path::new(path), path)?;
        }
        Ok(())
    }

    /// Notes packages of this machine as installed: their libraries are here.
    fn has_packages(&self, names: &[String]) -> Result<()> {
        let status = names.iter().map(|name| said(Command::new("dpkg-query").args(["--status", name])));
        let status: Vec<String> = status.collect::<Result<_>>()?;
        std::fs::write(self.at("/var/lib/dpkg/status"), status.join("\n"))?;
        Ok(())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// dpkg in this root, without what this machine says of files to leave out.
    fn dpkg(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", self.0.display())).args(["--log=/dev/null", "--path-include=*"]).args(words);
        // Questions are answered by their defaults: there is nobody to ask.
        said(command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()))
    }

    /// What is here, but for dpkg's own notes.
    fn listing(&self) -> Result<BTreeSet<String>> {
        Ok(listing(&self.0)?.into_iter().filter(|path| !path.starts_with("/var/lib/dpkg/")).collect())
    }

    /// A command in this root, with a `/proc` and the devices of the machine.
    fn command(&self, words: &[&str]) -> Command {
        let script = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]).arg(&self.0).args(words);
        command
    }
}

/// The names of the packages that a package depends on, and the least version of libc6.
fn dependencies(package: &Path) -> Result<(Vec<String>, String)> {
    let field = said(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"))?;
    let names = field.split(", ").filter_map(|one| one.split_whitespace().next()).map(str::to_owned);
    let libc = field.split(", ").find_map(|one| one.trim().strip_prefix("libc6 (>= ")?.strip_suffix(')'));
    Ok((names.collect(), libc.with_context(|| format!("no libc6 with a version in '{field}'"))?.to_owned()))
}

/// The newest glibc whose symbols a file asks for.
fn newest_glibc(file: &Path) -> Result<(u32, u32)> {
    let symbols = said(Command::new("objdump").arg("--dynamic-syms").arg(file))?;
    let versions = symbols
        .split("GLIBC_2.")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|minor| minor.parse().ok()));
    Ok((2, versions.max().context("no symbols of glibc")?))
}

fn life() -> Result<()> {
    let place = places::emptied(places::tests().join("packaged/package"))?;
    let mut make = script("deb");
    // It is unpacked at once.
    make.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    said(make.arg("--from").arg(build()?).arg("--into").arg(&place))?;
    let Some(package) = listing(&place)?.pop_first().map(|name| place.join(&name[1..])) else { bail!("no package") };
    let program = c_program("forked_figures", &[])?;
    let root = Root::new(&program)?;
    let (packages, libc) = dependencies(&package)?;
    root.has_packages(&packages)?;
    for file in ["hinterland", "libhinterland.so"].map(|name| build().map(|build| build.join(name))) {
        let (file, version) = (file?, libc.split_once('.').context("a version")?);
        ensure!(
            (version.0.parse()?, version.1.parse()?) >= newest_glibc(&file)?,
            "{} needs more than libc6 {libc}",
            file.display()
        );
        root.libraries(&file)?;
    }
    let before = root.listing()?;

    let name = package.display().to_string();
    root.dpkg(&["--install", &name])?;
    installed(&root, &package, &before)?;
    for path in ["monitor", "inline"] {
        runs(&root, path)?;
    }

    // Settings that were changed survive a second installation and a removal, and go with a purge.
    std::fs::write(root.at(SETTINGS), "CAPACITY=2G\n")?;
    root.dpkg(&["--install", &name])?;
    root.dpkg(&["--remove", "hinterland"])?;
    ensure!(std::fs::read_to_string(root.at(SETTINGS))? == "CAPACITY=2G\n", "the settings were not kept");
    // A run leaves the folder of its user's sockets, empty.
    std::fs::remove_dir(root.at("/tmp/hinterland-0"))?;
    let left: BTreeSet<String> = root.listing()?.difference(&before).cloned().collect();
    let kept: BTreeSet<String> = ["/etc/", "/etc/default/", SETTINGS].map(str::to_owned).into();
    same("after the removal", &left, &kept)?;
    root.dpkg(&["--purge", "hinterland"])?;
    same("after the purge", &root.listing()?, &before)?;
    Ok(())
}

/// What the package has is there, is all that the list of an installation has, and unharmed.
fn installed(root: &Root, package: &Path, before: &BTreeSet<String>) -> Result<()> {
    let now = root.listing()?;
    let files: BTreeSet<String> = now.difference(before).filter(|path| !path.ends_with('/')).cloned().collect();
    let usr = installed_files()?.into_iter().chain(manual_pages()?).map(|file| format!("/usr{file}"));
    let of_debian = [
        SETTINGS,
        "/usr/share/zsh/vendor-completions/_hinterland",
        "/usr/share/doc/hinterland/copyright",
        "/usr/share/doc/hinterland/changelog.gz",
        "/usr/share/lintian/overrides/hinterland",
    ];
    let wanted: BTreeSet<String> = usr.chain(of_debian.map(str::to_owned)).collect();
    same("installed", &files, &wanted)?;
    ensure!(root.dpkg(&["--verify", "hinterland"])?.is_empty(), "files differ from their checksums");
    let state = said(Command::new("dpkg-deb").arg("--info").arg(package).arg("conffiles"))?;
    ensure!(state == format!("{SETTINGS}\n"), "settings: {state}");
    Ok(())
}

/// A program runs at a quarter of its memory with the command of the package.
fn runs(root: &Root, path: &str) -> Result<()> {
    let words = ["/usr/bin/hinterland", "run", "--local", "16M", "--fault-path", path, "--stats", "/tmp/stats.json"];
    let command = root.command(&[&words[..], &["--", "/bin/program", "64", "2"]].concat());
    Launch::of(&format!("packaged-{path}"), command)?.with("TMPDIR", "/tmp").run()?.expect(0, "figures ok")?;
    let stats = root.at("/tmp/stats.json");
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats)?)?;
    std::fs::remove_file(&stats)?;
    ensure!(figures["major_faults"].as_u64() > Some(0) && figures["fault_path"] == path, "{figures}");
    Ok(())
}
