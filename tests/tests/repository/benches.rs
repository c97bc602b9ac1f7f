//! What scripts of the benches make of their figures, whatever was measured.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a script answers in Python, with `input` on its standard input.
fn answer(python: &str, input: &str) -> String {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches");
    let mut command = Command::new("python3");
    command.args(["-c", python]).current_dir(benches).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python is there");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{python}");
    String::from_utf8(output.stdout).expect("it writes text")
}

/// A sample of half a second as `perf script` shows it.
fn sample(thread: &str, stack: &[(&str, &str)]) -> String {
    let frames = stack.iter().map(|(function, file)| format!("\t    ffffffff81000000 {function} ({file})\n"));
    format!("{thread} 4711  500000000 \n{}\n", frames.collect::<String>())
}

#[test]
fn each_sample_of_an_account_is_in_one_bucket() {
    const KERNEL: &str = "[kernel.kallsyms]";
    const OURS: &str = "/opt/my programs/libhinterland.so";
    let script = [
        sample("sqlite3", &[("clear_page_erms", KERNEL), ("mfill_atomic_copy", KERNEL), ("userfaultfd_ioctl", KERNEL)]),
        sample("sqlite3", &[("x64_setup_rt_frame", KERNEL), ("asm_exc_page_fault", KERNEL)]),
        sample("sqlite3", &[("vfs_read", KERNEL), ("ksys_read", KERNEL)]),
        sample("sqlite3", &[("LZ4_decompress_safe", OURS), ("<A as hinterland::Backend>::load", OURS)]),
        sample("my thread", &[("sqlite3VdbeExec", "/lib/libsqlite3.so")]),
        sample("sqlite3", &[("_rjem_malloc", OURS)]),
        // Inside of what unmaps: what the other processors are told.
        sample("far-evictor", &[("flush_tlb_mm_range", KERNEL), ("zap_page_range_single", KERNEL)]),
        sample("far-evictor", &[("zap_page_range_single", KERNEL), ("do_madvise", KERNEL)]),
        sample("far-evictor", &[("LZ4_compress_fast_extState", OURS)]),
        sample("far-evictor", &[("__memmove_avx512", "/lib/libc.so.6")]),
        sample("far-ahead", &[]),
        sample("hinterland", &[("smaps_account", KERNEL)]),
    ];
    let python = "import account, json, sys\nprint(json.dumps(account.account(sys.stdin.read()), sort_keys=True))";
    let expected = r#"{"ahead": {"kernel, other": 0.5}, "#.to_owned()
        + r#""evictor": {"TLB shootdown": 0.5, "compression": 0.5, "own code": 0.5, "zap": 0.5}, "#
        + r#""faulting": {"UFFDIO_COPY": 0.5, "allocator": 0.5, "decompression": 0.5, "program": 1.0, "signal delivery": 0.5}, "#
        + r#""launcher": {"all": 0.5}}"#;
    assert_eq!(answer(python, &script.concat()).trim(), expected);
}
