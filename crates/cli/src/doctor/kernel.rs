//! The kernel: its version, userfaultfd and its features, io_uring, and layers that forbid them (seccomp, containers).

use super::Check;
use crate::host::Host;
use crate::launch::{TRAP_REMEDY, userfaultfd_remedy};
use hinterland_sys::seccomp::{self, Permission};
use hinterland_sys::{FeatureSet, Features, Privilege};
use nix::unistd::{AccessFlags, access, geteuid};

/// All checks of this file.
pub fn checks(host: &Host) -> Vec<Check> {
    let features = Features::probe(FeatureSet::All);
    let mut checks = vec![version(host), userfaultfd(features.privilege)];
    checks.extend([sysctl(host, features.privilege), device(features.privilege)]);
    if !matches!(features.privilege, Privilege::None(_)) {
        checks.extend(uffd_features(&features));
    }
    checks.push(fault_paths(&features));
    checks.extend([sandbox(host), container(host), io_uring(host)]);
    checks
}

fn version(host: &Host) -> Check {
    let release = host.read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version {
        (0..=4, _) | (5, 0..=14) => Check::limited(
            "kernel",
            format!("Linux {release}: older than any that Hinterland is tested on"),
            "use Linux 5.15 or newer; 6.8 or newer is faster",
        ),
        (5, _) | (6, 0..=7) => Check::limited(
            "kernel",
            format!("Linux {release}: pages are evicted by copying"),
            "Linux 6.8 or newer moves them",
        ),
        _ => Check::ok("kernel", format!("Linux {release}")),
    }
}

fn userfaultfd(privilege: Privilege) -> Check {
    match userfaultfd_remedy(privilege, FeatureSet::All) {
        None => Check::ok("userfaultfd", "allowed, faults of system calls included"),
        Some((_, remedy)) if privilege == Privilege::UserOnly => {
            Check::limited("userfaultfd", "allowed, but not for faults of system calls: no monitor path", remedy)
        }
        Some((what, remedy)) => Check::missing("userfaultfd", format!("userfaultfd {what}"), remedy),
    }
}

/// Which fault paths programs can run on, and which one `auto` takes.
fn fault_paths(features: &Features) -> Check {
    let name = "fault paths";
    let remedy = TRAP_REMEDY;
    let filter = match seccomp::permission() {
        _ if !features.signals => Err("userfaultfd cannot send signals".to_owned()),
        Ok(permission) => Ok(permission),
        Err(error) => Err(format!("system calls cannot be trapped ({error})")),
    };
    match (features.privilege, filter) {
        (Privilege::None(_), _) => Check::missing(name, "none: userfaultfd cannot be used", "see userfaultfd above"),
        (Privilege::Kernel, Ok(Permission::Free)) => Check::ok(
            name,
            "inline and monitor; auto takes inline, and the monitor for programs with system calls of their own",
        ),
        (Privilege::Kernel, Ok(Permission::ForNewPrivileges)) => Check::ok(
            name,
            "monitor and inline; auto takes the monitor, because inline would take set-user-id programs their privileges",
        ),
        (Privilege::Kernel, Err(why)) => Check::limited(name, format!("monitor alone: {why}"), remedy),
        (Privilege::UserOnly, Ok(_)) => Check::ok(
            name,
            "inline (set-user-id programs that it starts gain nothing; programs with system calls of their own are refused)",
        ),
        (Privilege::UserOnly, Err(why)) => Check::missing(name, format!("none: {why}"), remedy),
    }
}

/// The sysctl: one of three ways to the privilege, so its absence alone is no fault.
fn sysctl(host: &Host, privilege: Privilege) -> Check {
    let name = "unprivileged userfaultfd";
    let value = host.read("/proc/sys/vm/unprivileged_userfaultfd");
    match value.as_deref() {
        Some("1") => Check::ok(name, "vm.unprivileged_userfaultfd = 1"),
        _ if privilege == Privilege::Kernel => {
            let who = if geteuid().is_root() { "root" } else { "this user" };
            let value = value.unwrap_or_else(|| "absent".into());
            Check::ok(name, format!("vm.unprivileged_userfaultfd = {value}; {who} does not need it, other users do"))
        }
        value => Check::limited(
            name,
            format!("vm.unprivileged_userfaultfd = {}", value.unwrap_or("absent")),
            "as root: sysctl -w vm.unprivileged_userfaultfd=1 (to keep it: a line in /etc/sysctl.d/hinterland.conf)",
        ),
    }
}

fn device(privilege: Privilege) -> Check {
    let (name, path) = ("/dev/userfaultfd", "/dev/userfaultfd");
    let found = match access(path, AccessFlags::R_OK | AccessFlags::W_OK) {
        Ok(()) => return Check::ok(name, "can be opened"),
        Err(nix::errno::Errno::ENOENT) => "is not there (Linux 6.1 or newer has it)",
        Err(_) => "may not be opened by this user",
    };
    if privilege == Privilege::Kernel {
        return Check::ok(name, format!("{found}; not needed, the system call is allowed"));
    }
    Check::limited(
        name,
        found,
        "as root: chmod 666 /dev/userfaultfd (udev rule: KERNEL==\"userfaultfd\", MODE=\"0666\"); in a container: --device /dev/userfaultfd",
    )
}

/// One check for each feature that is used.
fn uffd_features(features: &Features) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut feature = |name, has: bool, without: &'static str, since: &'static str| {
        checks.push(match has {
            true => Check::ok(name, "available"),
            false => {
                Check::limited(name, format!("not in this kernel: {without}"), format!("use Linux {since} or newer"))
            }
        });
    };
    feature("uffd MOVE", features.move_pages, "pages leave by write-protect, copy and drop", "6.8");
    feature("process_madvise", features.drop_vector(), "scattered pages leave one call each", "6.13");
    feature("uffd SIGBUS", features.signals, "the inline fault path cannot be used", "4.14");
    feature("uffd THREAD_ID", features.thread_id, "faults do not say which thread waits", "4.14");
    checks.push(match (features.write_protect, features.move_pages) {
        (true, _) => Check::ok("uffd write-protect", "available"),
        (false, true) => Check::limited(
            "uffd write-protect",
            "not offered: pages that cannot be moved stay local",
            "use a kernel with CONFIG_HAVE_ARCH_USERFAULTFD_WP (x86-64 since 5.7, arm64 since 6.10)",
        ),
        (false, false) => Check::missing(
            "uffd write-protect",
            "neither MOVE nor write-protect: no page can leave safely",
            "use Linux 5.7 or newer on x86-64, 6.8 or newer elsewhere",
        ),
    });
    checks
}

fn sandbox(host: &Host) -> Check {
    let status = host.read("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map_or("0", str::trim);
    match mode {
        "0" => Check::ok("seccomp", "no filter"),
        _ => Check::ok("seccomp", "a filter is active; what it forbids shows in the other lines"),
    }
}

fn container(host: &Host) -> Check {
    let first_environment = host.read("/proc/1/environ").unwrap_or_default();
    let kind = if host.read("/.dockerenv").is_some() {
        Some("Docker")
    } else if host.read("/run/.containerenv").is_some() {
        Some("Podman")
    } else {
        first_environment.split('\0').find_map(|pair| pair.strip_prefix("container=")).map(|_| "a container")
    };
    match kind {
        Some(kind) => {
            Check::ok("container", format!("{kind}; if something is MISSING here, look at its security options"))
        }
        None => Check::ok("container", "none found"),
    }
}

/// io_uring carries the file backend's transfers; without it that backend uses threads.
fn io_uring(host: &Host) -> Check {
    // SAFETY: zero entries and no parameters: the kernel checks the permission, then refuses the arguments; nothing is made.
    let rc = unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, std::ptr::null_mut::<libc::c_void>()) };
    let errno = if rc < 0 { nix::errno::Errno::last_raw() } else { 0 };
    let disabled = host.read("/proc/sys/kernel/io_uring_disabled").unwrap_or_else(|| "0".into());
    match errno {
        libc::EPERM => Check::limited(
            "io_uring",
            format!("forbidden (kernel.io_uring_disabled = {disabled}): the file backend uses threads instead"),
            "as root: sysctl -w kernel.io_uring_disabled=0; in a container: a seccomp profile that allows io_uring_setup, io_uring_enter, io_uring_register",
        ),
        libc::ENOSYS => Check::limited(
            "io_uring",
            "not there: the file backend uses threads instead",
            "use a kernel with CONFIG_IO_URING=y, or a seccomp profile that allows it",
        ),
        _ => Check::ok("io_uring", "allowed"),
    }
}
