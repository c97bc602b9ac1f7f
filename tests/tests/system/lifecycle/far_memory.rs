//! Far memory that is too small, full or damaged: the run ends with a message that helps, and never with a wrong byte.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::{places, skips, suite};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Words of a message about damage.
const DAMAGE: [&str; 4] = ["damaged", "corrupt", "checksum", "hash"];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let root = || skips::not_root().or_else(skips::no_userfaultfd);
    let mut trials = vec![
        suite::trial("lifecycle::far_memory::too_small", skips::no_userfaultfd, too_small),
        suite::trial("lifecycle::far_memory::too_small_for_ram", skips::no_userfaultfd, too_little_ram),
        suite::trial("lifecycle::far_memory::broken", skips::no_userfaultfd, broken),
        suite::trial("lifecycle::far_memory::elsewhere", skips::no_userfaultfd, elsewhere),
        suite::trial("lifecycle::far_memory::disk_full::tmpfs", root, || disk_full("tmpfs", &mount_tmpfs)),
        suite::trial("lifecycle::far_memory::disk_full::ext4", no_loop_device, || disk_full("ext4", &mount_ext4)),
    ];
    for (path, own) in [("inline", 0), ("monitor", 1)] {
        let name = format!("lifecycle::far_memory::rings::{path}");
        trials.push(suite::trial(name, || skips::no_userfaultfd().or_else(no_rings), move || rings(path, own)));
    }
    for (kind, url) in [("compressed", "compressed:1G"), ("file", "file:far?size=1G")] {
        for seed in 1..=4 {
            let name = format!("lifecycle::far_memory::damage::{kind}::{seed}");
            trials.push(suite::trial(name.clone(), skips::no_userfaultfd, move || damaged(&name, url, seed)));
        }
    }
    trials
}

/// The file backend goes through io_uring in every process of a run, also where the filter of the inline path refuses it to the
/// program (`own`: whether the program may make rings).
fn rings(path: &str, own: u8) -> Result<()> {
    let program = c_program("rings", &[])?.display().to_string();
    let arguments = ["--local", "16M", "--far", "file:far?size=1G", "--fault-path", path];
    let ended = Launch::new(&format!("rings-{path}"), &arguments, &[&program])?.run()?;
    let expected: String = ["parent", "child", "program", "child"].map(|who| format!("{who} 1 {own}\n")).concat();
    ensure!(ended.code == 0, "ended with {}: {}", ended.code, ended.stderr);
    ensure!(ended.stdout == expected, "rings of the library and of the program: {}", ended.stdout);
    Ok(())
}

fn no_rings() -> Option<String> {
    let mut parameters = [0u64; 15];
    // SAFETY: `struct io_uring_params` has 120 bytes, of which all bits may be zero.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4usize, parameters.as_mut_ptr()) };
    if let Ok(ring) = i32::try_from(ring)
        && ring >= 0
    {
        // SAFETY: just made, and nobody else knows it.
        unsafe { libc::close(ring) };
        return None;
    }
    Some("io_uring is not allowed here".into())
}

/// Far memory smaller than needed ends the run with how much was needed, as an out-of-memory does.
fn too_small() -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let ended = Launch::new("too-small", &["--local", "16M", "--far", "compressed:8M"], &[&program, "96"])?.run()?;
    ended.expect_refusal(&["need"])?;
    ensure!(!ended.stdout.contains("ready"), "the program went on: {}", ended.stdout);
    ensure!(ended.stderr.contains("MiB") || ended.stderr.contains("bytes"), "no amount in: {}", ended.stderr);
    ended.stats().context("an ended run has statistics too")?;
    Ok(())
}

/// The same for `--ram`: compressed copies of a program that does not compress enough are no help.
fn too_little_ram() -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let arguments = ["--local", "16M", "--ram", "32M", "--far", "compressed:1G"];
    Launch::new("too-little-ram", &arguments, &[&program, "96"])?.run()?.expect_refusal(&["--ram"])?;
    Ok(())
}

/// A device that fails is not said to be full: more far memory would not help.
fn broken() -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let arguments = ["--local", "16M", "--far", "file:far?size=1G&fault=store@1"];
    let ended = Launch::new("broken", &arguments, &[&program, "96"])?.run()?;
    ended.expect_refusal(&["cannot store a page: Input/output error"])?;
    ensure!(!ended.stderr.contains("used up"), "{}", ended.stderr);
    Ok(())
}

/// A program of the run that starts in another directory, where no file can be made, has its far file all the same.
fn elsewhere() -> Result<()> {
    let script = format!("cd /proc && exec {} 64", c_program("hold", &[])?.display());
    let arguments = ["--local", "16M", "--strict", "--far", "file:far?size=1G"];
    let ended = Launch::new("elsewhere", &arguments, &["sh", "-c", &script])?.run()?;
    ended.expect(0, "done")?;
    let stored = ended.stats()?["backends"][0]["bytes_in"].as_u64();
    ensure!(stored > Some(40 << 20), "{stored:?} bytes were stored of 64 MiB: {}", ended.stderr);
    Ok(())
}

/// A full disk below the file backend is a clear error, at the start or when it happens.
fn disk_full(kind: &str, mount: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    let point = places::emptied(places::tests().join("lifecycle").join(format!("mount-{kind}")))?;
    mount(&point)?;
    let _mounted = Mounted(point.clone());
    let program = c_program("hold", &[])?.display().to_string();
    let url = format!("file:{}?size=1G", point.join("far").display());
    let test = format!("disk-full-{kind}");
    let ended = Launch::new(&test, &["--local", "16M", "--far", &url], &[&program, "96"])?.run()?;
    ended.expect_refusal(&["no space left", "full", "free"])?;
    let left = std::fs::read_dir(&point)?.flatten().filter(|entry| entry.file_name() != "lost+found").count();
    ensure!(left == 0, "{left} files were left in {}", point.display());
    Ok(())
}

/// One page in a hundred comes back with a flipped bit: the run must end with a message, every time.
fn damaged(name: &str, url: &str, seed: u32) -> Result<()> {
    let program = c_program("hold", &[])?.display().to_string();
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}fault=flip:0.01&seed={seed}");
    let ended = Launch::new(name, &["--local", "16M", "--far", &url], &[&program, "64"])?.run()?;
    ended.expect_refusal(&DAMAGE)?;
    ensure!(!ended.stdout.contains("done"), "the program finished on damaged memory: {}", ended.stdout);
    Ok(())
}

/// Unmounts when it goes.
pub struct Mounted(pub PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn mount_tmpfs(point: &Path) -> Result<()> {
    mount(Some("tmpfs"), point, Some("tmpfs"), MsFlags::empty(), Some("size=24m")).context("cannot mount a tmpfs")
}

/// A small ext4 in a file. `mount` makes the loop device and takes it away with the mount.
fn mount_ext4(point: &Path) -> Result<()> {
    let image = point.with_extension("img");
    std::fs::File::create(&image)?.set_len(32 << 20)?;
    for (program, arguments) in [("mkfs.ext4", vec!["-q", "-F"]), ("mount", vec!["-o", "loop"])] {
        let mut command = Command::new(skips::find(program).context("a program that was found before")?);
        command.args(arguments).arg(&image);
        if program == "mount" {
            command.arg(point);
        }
        let output = command.output()?;
        ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Containers often have no loop devices.
fn no_loop_device() -> Option<String> {
    let missing = ["mkfs.ext4", "mount", "losetup"].into_iter().find(|name| skips::find(name).is_none());
    let missing = missing.map(|name| format!("{name} is not installed (./dev setup)"));
    let free =
        || Command::new(skips::find("losetup")?).arg("-f").output().ok().filter(|output| output.status.success());
    skips::not_root()
        .or_else(skips::no_userfaultfd)
        .or(missing)
        .or_else(|| free().is_none().then(|| "no free loop device".into()))
}
