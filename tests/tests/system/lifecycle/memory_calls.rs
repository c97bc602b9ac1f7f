//! Memory calls that do not come through the functions of their names: what they map is managed, what they drop is gone, and where that
//! cannot be, the program does not start.

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Ended, Launch, c_program};
use hinterland_tests::suite::Trial;
use hinterland_tests::unprivileged::Nobody;
use hinterland_tests::{places, skips, suite};
use std::path::Path;
use std::process::Command;

/// Exit code of a refusal.
const REFUSED: i32 = 125;
const PATHS: [&str; 2] = ["monitor", "inline"];

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let go = || skips::no_userfaultfd().or_else(no_go);
    let own_calls = [("registers", "registers: wrong 0"), ("child", "child: 7")];
    let own_calls = own_calls.into_iter().flat_map(|(what, right)| PATHS.map(|path| own_call(what, right, path)));
    let handlers = ["alone", "beside"].into_iter().flat_map(|how| PATHS.map(|path| in_a_handler(how, path)));
    own_calls
        .chain(handlers)
        .chain([
            suite::trial("lifecycle::memory_calls::no_room", skips::no_userfaultfd, no_room),
            suite::trial("lifecycle::memory_calls::go", go, go_memory),
            suite::trial("lifecycle::memory_calls::beyond", skips::no_userfaultfd, beyond),
        ])
        .collect()
}

/// Calls by the instruction itself, with all registers in use, and in a child that nobody was told of.
fn own_call(what: &'static str, right: &'static str, path: &'static str) -> Trial {
    let name = format!("lifecycle::memory_calls::{what}::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("own_calls", &[])?.display().to_string();
        let ended = Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program, what])?.run()?;
        ended.expect(0, right)?;
        ensure!(
            path != "monitor" || ended.stderr.contains("are redirected"),
            "nothing was redirected: {}",
            ended.stderr
        );
        Ok(())
    })
}

/// A call in a signal handler that interrupts libc's allocator starts a thread of ours: the allocator is whole afterwards.
fn in_a_handler(how: &'static str, path: &'static str) -> Trial {
    let name = format!("lifecycle::memory_calls::in_a_handler::{how}::{path}");
    suite::trial(name.clone(), skips::no_userfaultfd, move || {
        let program = c_program("in_a_handler", &["-Wl,-z,now"])?.display().to_string();
        let arguments = ["--local", "16M", "--heap", "large", "--fault-path", path];
        Launch::new(&name, &arguments, &[&program, how])?.run()?.expect(0, &format!("{how}: "))?;
        Ok(())
    })
}

/// An instruction that cannot be redirected is a reason not to start on the monitor path; inline, the filter sees its calls.
fn no_room() -> Result<()> {
    let program = c_program("own_calls", &["-DNARROW"])?.display().to_string();
    let run = |path: &str| {
        let name = format!("memory-calls-no-room-{path}");
        Launch::new(&name, &["--local", "16M", "--fault-path", path], &[&program])?.run()
    };
    for path in ["monitor", "auto"] {
        let refused = run(path)?;
        refused.expect_refusal(&["leaves no room to redirect"])?.expect(REFUSED, "")?;
        ensure!(!refused.stdout.contains("narrow"), "the program was started all the same");
    }
    run("inline")?.expect(0, "narrow: 1")?;
    if skips::not_root().is_none() {
        unprivileged("memory-calls-no-room-unprivileged", "16M", &program)?.expect(0, "narrow: 1")?;
    }
    Ok(())
}

/// A reservation that is larger than the far range is the kernel's, and named; one that is not is managed. One across the end of the far range
/// is where it was commanded.
fn beyond() -> Result<()> {
    const TIB: u64 = 1 << 40;
    let program = c_program("beyond", &[])?.display().to_string();
    for (tib, largest) in [("1", 0), ("16", 16 * TIB)] {
        let ended = Launch::new(&format!("memory-calls-beyond-{tib}"), &["--local", "16M"], &[&program, tib])?.run()?;
        ended.expect(0, "2476736512 and 2476736512\nacross the end: there")?.expect_paging()?;
        let stats = ended.stats()?;
        ensure!(stats["beyond_far_range_bytes"] == largest, "{stats}");
        ensure!(
            ended.stderr.contains("a mapping of 16 TiB, which is the kernel's") == (largest > 0),
            "{}",
            ended.stderr
        );
        let managed = stats["managed_peak_bytes"].as_u64().context("what was managed")?;
        ensure!((managed > 90 << 20) == (largest == 0), "{managed}: {}", ended.stderr);
    }
    Ok(())
}

/// Runs a program as somebody without rights, inline.
fn unprivileged(name: &str, budget: &str, program: &str) -> Result<Ended> {
    let nobody = Nobody::new(name)?;
    let words = [nobody.bring(Path::new(program))?.display().to_string()];
    let launch = nobody.launch_managed(name, &["--local", budget, "--fault-path", "inline"], &words)?;
    launch.run()
}

fn no_go() -> Option<String> {
    skips::find("go").is_none().then(|| "go is not installed".into())
}

/// Slices that take the place of dropped ones are zero; memory of C's that is dropped by Go's system calls is zero, and children run.
const GO: &str = r#"package main
/*
#include <sys/mman.h>
static void *fresh(size_t bytes) { return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
*/
import "C"
import (
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"unsafe"
)

const part = 24 << 20

func fill(at []byte) (dirty int) {
	for i := 0; i < len(at); i += 4096 {
		if at[i] != 0 { dirty++ }
		at[i] = byte(i>>12) | 1
	}
	return
}

func main() {
	dirty, children := 0, 0
	var lock sync.Mutex
	for round := 0; round < 4; round++ {
		var all sync.WaitGroup
		for i := 0; i < 4; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				found := fill(make([]byte, part))
				said, err := exec.Command("/bin/echo", "here").Output()
				lock.Lock()
				dirty += found
				if err == nil && string(said) == "here\n" { children++ }
				lock.Unlock()
			}()
		}
		all.Wait()
		runtime.GC()
		debug.FreeOSMemory()
	}
	memory := unsafe.Slice((*byte)(C.fresh(part)), part)
	for round := 0; round < 3; round++ {
		dirty += fill(memory)
		if err := syscall.Madvise(memory, syscall.MADV_DONTNEED); err != nil { fmt.Println(err) }
	}
	fmt.Println("dirty", dirty, "children", children)
}
"#;

/// Builds the Go program.
fn go_program() -> Result<String> {
    let directory = places::emptied(places::tests().join("lifecycle/go-memory"))?;
    std::fs::write(directory.join("main.go"), GO)?;
    let mut command = Command::new("go");
    command.args(["build", "-o", "program", "main.go"]).current_dir(&directory);
    command.env("CGO_ENABLED", "1").env("GOCACHE", places::tests().join("go-cache")).env("GOFLAGS", "-mod=mod");
    let built = command.output().context("cannot start go")?;
    ensure!(built.status.success(), "go cannot build: {}", String::from_utf8_lossy(&built.stderr));
    Ok(directory.join("program").display().to_string())
}

/// Go's runtime drops memory by an instruction of its own: what takes its place is zero. It also blocks the signals that the inline path
/// needs: it is not started there.
fn go_memory() -> Result<()> {
    let program = go_program()?;
    for path in ["auto", "monitor"] {
        let name = format!("memory-calls-go-{path}");
        let ended = Launch::new(&name, &["--local", "48M", "--fault-path", path], &[&program])?.run()?;
        ended.expect(0, "dirty 0 children 16")?.expect_paging()?;
        ensure!(ended.stderr.contains("are redirected"), "the summary says nothing of it: {}", ended.stderr);
    }
    let launch = Launch::new("memory-calls-go-inline", &["--local", "48M", "--fault-path", "inline"], &[&program])?;
    let mut ended = vec![launch.run()?];
    if skips::not_root().is_none() {
        ended.push(unprivileged("memory-calls-go-unprivileged", "48M", &program)?);
    }
    for refused in ended {
        refused.expect_refusal(&["written in Go"])?.expect(REFUSED, "")?;
        ensure!(!refused.stdout.contains("dirty"), "the program was started all the same");
    }
    Ok(())
}
