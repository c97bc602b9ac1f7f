//! The table.

use super::Outcome::{AsNatively, Named, Refused};
use super::{Case, Outcome, Proof};

/// On the monitor path userfaultfd needs a right, whatever the program is.
const NO_RIGHT: Outcome = Refused("userfaultfd may not serve the faults of system calls for this user");

/// A case in which all is as natively and pages leave.
const fn case(name: &'static str, about: &'static str, proof: Proof) -> Case {
    Case { name, about, proof, pages: true, otherwise: false, outcomes: [AsNatively, AsNatively, NO_RIGHT, AsNatively] }
}

impl Case {
    /// What happens on the monitor path, and inline with and without privileges.
    const fn but(mut self, monitor: Outcome, inline: Outcome) -> Case {
        self.outcomes = [monitor, inline, NO_RIGHT, inline];
        self
    }

    /// A case in which the program goes on otherwise, after it was named.
    const fn otherwise(mut self) -> Case {
        self.otherwise = true;
        self
    }

    /// A case of little memory.
    const fn near(mut self) -> Case {
        self.pages = false;
        self
    }
}

/// A program of our own.
const fn program(name: &'static str, words: &'static [&'static str]) -> Proof {
    Proof::Program(name, words)
}

/// The cases, by kind.
pub const KINDS: [(&str, &[Case]); 9] = [
    ("Memory calls", &MEMORY),
    ("Runtimes", &RUNTIMES),
    ("Between processes", &BETWEEN),
    ("Children", &CHILDREN),
    ("Programs with one thread", &ALONE),
    ("Ends", &ENDS),
    ("Programs that confine themselves", &CONFINED),
    ("Outside the budget", &OUTSIDE),
    ("Programs of others, in the long form", &OTHERS),
];

/// What is documented and has no outcome in the table, with the place.
pub const DOCUMENTED: [(&str, &str); 3] = [
    (
        "process_vm_readv, process_vm_writev, ptrace and `/proc/PID/mem` from outside the run",
        "../compatibility.md#calls",
    ),
    ("`/proc/self/pagemap` and `PAGEMAP_SCAN`, which call evicted pages untouched", "../compatibility.md#calls"),
    (
        "a filter of system calls that is installed by an instruction of the program's own",
        "../compatibility.md#programs-that-confine-themselves",
    ),
];

const MEMORY: [Case; 20] = [
    case("by_number", "maps, drops and unmaps by libc's `syscall`, as SBCL does", program("mapped_by_number", &[])),
    case(
        "by_instruction",
        "drops memory by the instruction itself, from many threads",
        program("own_calls", &["threads"]),
    ),
    case("sealed_kept", "seals memory, then needs more than there is", program("field/sealed", &["keep"])),
    case("sealed_dropped", "drops sealed memory that it may not write to", program("field/sealed", &["drop"])),
    case("sealed_writable", "drops sealed memory that it may write to", program("field/sealed", &["drop-writable"])),
    case("sealed_changed", "moves, replaces, unmaps and protects sealed memory", program("field/sealed", &["change"])),
    case("sealed_forked", "forks with sealed memory", program("field/sealed", &["fork"])),
    case(
        "holes",
        "asks whether memory is mapped, where it was unmapped and above the break",
        program("field/holes", &[]),
    )
    .near(),
    case(
        "tricks",
        "moves memory and keeps its place, has a write barrier by SIGSEGV, maps over a part, grows it",
        program("field/tricks", &[]),
    ),
    case(
        "bad_pointers",
        "names addresses that are none, then evicted ones, to calls that Hinterland makes itself (limits, masks, signal stacks, `mincore`, `clone3`)",
        program("field/bad_pointers", &[]),
    ),
    case("regrown", "grows objects beyond their place, and looks at errno", program("field/regrown", &[])),
    case("bus_errors", "recovers from its own SIGBUS while memory comes and goes", program("field/bus_errors", &[])),
    case(
        "fixed_below",
        "maps 1 TiB with `MAP_FIXED` where the far range begins",
        program("field/addresses", &["below"]),
    ),
    case(
        "page",
        "reserves low addresses with `MAP_FIXED`, where Hinterland makes its calls, then maps memory there",
        program("field/addresses", &["page"]),
    )
    .but(OVER_THE_PAGE, OVER_THE_PAGE)
    .otherwise(),
    case(
        "insists",
        "reserves memory where it wishes, and takes nothing else, as the JVM's ZGC does",
        program("field/addresses", &["insist"]),
    ),
    case(
        "across",
        "reserves 2 TiB across the beginning of the far range, opens a part there, drops some, gives all back",
        program("field/addresses", &["across"]),
    ),
    case("across_end", "the same with 1 TiB across its end", program("field/addresses", &["end"])),
    case(
        "reserved",
        "reserves 8 TiB and opens parts of it, as MariaDB does for its buffer pool",
        program("field/addresses", &["reserve"]),
    ),
    case("reserved_huge", "reserves 64 TiB, as engines of WebAssembly do", program("field/addresses", &["huge"]))
        .near(),
    case(
        "stack_unlimited",
        "has a stack without a limit, so that the kernel maps libraries a third up and all else above",
        script("ulimit -s unlimited; $PROGRAM 32"),
    ),
];

const RUNTIMES: [Case; 14] = [
    case("own_malloc", "has an allocator of its own that keeps thread data in far memory", program("own_malloc", &[])),
    case(
        "own_pool",
        "has an allocator of its own that reserves its pool inside the far range",
        program("field/own_pool", &[]),
    ),
    case("early_pool", "maps memory inside the far range before any library begins", program("field/early_pool", &[]))
        .but(TAKEN, TAKEN)
        .near(),
    case(
        "low_pool",
        "reserves the lowest 4 GiB before any library begins, as Chromium does, and counts its threads by the links of their directory",
        program("field/early_pool", &["low"]),
    ),
    case(
        "deepbind",
        "frees its memory in a library that it opened with `RTLD_DEEPBIND`, and the other way round",
        program("field/deepbind", &[]),
    )
    .but(WITHOUT_DEEPBIND, WITHOUT_DEEPBIND),
    case(
        "small_stacks",
        "has threads on the smallest stacks that POSIX allows, as the D runtime's collector has, and calls on far memory there",
        program("field/small_stacks", &[]),
    ),
    case(
        "backtrace",
        "walks the stack from a signal's handler, through libc's `syscall` and a change of the mask in libc",
        program("field/backtrace", &[]),
    )
    .near(),
    case("restorer", "installs a signal's action by the system call, like libc's", program("field/restorer", &[]))
        .near(),
    case(
        "libc_handle",
        "takes libc's functions from a handle of libc, as Python's `ctypes.CDLL(\"libc.so.6\")` does",
        program("field/libc_handle", &[]),
    ),
    case("second_libc", "works with a second libc (`dlmopen`)", program("field/second_libc", &[])),
    case("auditor", "is watched by an auditor of the loader (`LD_AUDIT`)", Proof::Test("lifecycle::start_up::auditor")),
    case("auditor_inside", "starts another one with an auditor", Proof::Test("lifecycle::start_up::auditor_inside")),
    case("go", "is written in Go, with C beside it (cgo)", Proof::Test("lifecycle::memory_calls::go"))
        .but(AsNatively, Refused("written in Go")),
    case(
        "own_call_unroomed",
        "makes memory calls by an instruction that cannot be redirected",
        Proof::Test("lifecycle::memory_calls::no_room"),
    )
    .but(Refused("leaves no room to redirect"), AsNatively),
];

const WITHOUT_DEEPBIND: Outcome = Named("libstdc++.so.6 is to be opened without RTLD_DEEPBIND");
const TAKEN: Outcome = Refused("something was mapped at 0x490000000000");

const BETWEEN: [Case; 13] = [
    case(
        "peer",
        "reads and writes the memory of its child, which waits",
        program("between", &["peer", "48", "function"]),
    ),
    case("peer_by_number", "the same by libc's `syscall`", program("between", &["peer", "48", "by-number"])),
    case("peer_busy", "the same while the child computes", program("between", &["busy", "48", "function"])),
    case("peer_busy_by_number", "the same by libc's `syscall`", program("between", &["busy", "48", "by-number"])),
    case(
        "peers_both",
        "two processes read and write each other's memory at once",
        program("between", &["both", "48", "function"]),
    ),
    case("peers_both_by_number", "the same by libc's `syscall`", program("between", &["both", "48", "by-number"])),
    case(
        "peer_vectors",
        "reads and writes arrays of odd pieces of it, near and far",
        program("between", &["vectors", "48", "function"]),
    ),
    case("peer_vectors_by_number", "the same by libc's `syscall`", program("between", &["vectors", "48", "by-number"])),
    case(
        "peer_untouched",
        "reads and writes pages that its child has not touched",
        program("between", &["untouched", "48", "function"]),
    ),
    case(
        "peer_untouched_by_number",
        "the same by libc's `syscall`",
        program("between", &["untouched", "48", "by-number"]),
    ),
    case(
        "peer_refused",
        "names a wrong address, a wrong process, memory that may not be read",
        program("between", &["refused", "48", "function"]),
    ),
    case("peer_refused_by_number", "the same by libc's `syscall`", program("between", &["refused", "48", "by-number"])),
    case(
        "peer_small",
        "reads pages that its child has not touched, which has little memory and only waits",
        program("field/small_peer", &[]),
    )
    .but(AsNatively, DEAF)
    .near()
    .otherwise(),
];

const DEAF: Outcome = Named("a process with little far memory, which cannot be asked for its pages yet");

const CHILDREN: [Case; 30] = [
    case("no_descriptor_left", "forks without a free descriptor", program("full_table", &["full"])),
    case(
        "shared_files_clone",
        "`clone` with `CLONE_FILES` alone: a child is to share the descriptors, but not the memory",
        program("field/shared_files", &["clone"]),
    )
    .but(OWN_TABLE, OWN_TABLE)
    .otherwise(),
    case("shared_files_clone3", "the same by `clone3`", program("field/shared_files", &["clone3"]))
        .but(OWN_TABLE, OWN_TABLE)
        .otherwise(),
    case("limit_as", "sets `RLIMIT_AS`, and goes on below it", program("field/limited", &["as", "self"])),
    case("limit_as_number", "the same by libc's `syscall`", program("field/limited", &["as", "number"])),
    case("limit_as_forked", "forks below it", program("field/limited", &["as", "fork"])),
    case("limit_as_exec", "starts a program below it", program("field/limited", &["as", "exec"])),
    case("limit_as_spawned", "the same by posix_spawn", program("field/limited", &["as", "spawn"])),
    case("limit_data", "sets `RLIMIT_DATA`", program("field/limited", &["data", "self"])),
    case("limit_data_number", "the same by libc's `syscall`", program("field/limited", &["data", "number"])),
    case("limit_data_forked", "forks below it", program("field/limited", &["data", "fork"])),
    case("limit_data_exec", "starts a program below it", program("field/limited", &["data", "exec"])),
    case("limit_data_spawned", "the same by posix_spawn", program("field/limited", &["data", "spawn"])),
    case("tracer", "traces a child that it began by vfork, as gdb does", program("field/tracer", &[])),
    case("registers", "a debugger's register sets are on its heap", program("field/registers", &[])),
    case("jailed", "chroot, rights given up, no dumps, then memory and a fork", program("field/jailed", &[])),
    case(
        "namesakes",
        "children in a root without `/proc`, each the process 1 of its PID namespace, limit their memory at once",
        program("field/namesakes", &["fork"]),
    ),
    case("namesakes_exec", "the same below a program in a user namespace", program("field/namesakes", &["exec"])),
    case(
        "task_old",
        "a child that shares the memory (`CLONE_VM`) reads evicted pages",
        program("field/tasks", &["old", "clone"]),
    ),
    case("task_new", "it touches new pages", program("field/tasks", &["new", "clone"])),
    case("task_own", "it maps memory", program("field/tasks", &["own", "clone"])),
    case("task_far", "its own stack is in far memory, and deep", program("field/tasks", &["old", "far"])),
    case(
        "task_peer",
        "it and its parent read and write each other's memory, which is the same",
        program("field/tasks", &["old", "peer"]),
    ),
    case(
        "task_stack",
        "its stack is a block of `malloc`'s; it reads a file by stdio and allocates",
        program("field/heap_stacks", &["task"]),
    ),
    case(
        "task_stack_vfork",
        "the same while its parent sleeps (`CLONE_VFORK`)",
        program("field/heap_stacks", &["vfork"]),
    ),
    case(
        "task_stack_thread",
        "a thread that libc does not know, on such a stack",
        program("field/heap_stacks", &["thread"]),
    ),
    case(
        "reset_function",
        "a child takes every signal's action back, works on evicted pages and calls exec",
        program("field/reset_signals", &["function"]),
    ),
    case("reset_number", "the same by libc's `syscall`, as browsers do", program("field/reset_signals", &["number"])),
    case("vfork_old", "a child of vfork reads evicted pages", program("field/tasks", &["old", "vfork"])),
    case("vfork_own", "a child of vfork maps memory", program("field/tasks", &["own", "vfork"])),
];

const OVER_THE_PAGE: Outcome =
    Named("a mapping over the page at 0x17000, from which Hinterland makes its calls, is refused");
const OWN_TABLE: Outcome = Named("(CLONE_FILES without CLONE_VM) has a table of its own");

const ALONE: [Case; 13] = [
    case("alone_user", "makes a user namespace (`unshare`), then forks", program("field/alone", &["user"])),
    case("alone_all", "makes namespaces of users, mounts and processes at once", program("field/alone", &["all"])),
    case("alone_by_number", "the same by libc's `syscall`", program("field/alone", &["number"])),
    case("alone_mounts", "enters a mount namespace (`setns`)", program("field/alone", &["mounts"])),
    case("alone_users", "enters the user namespace of a child (`setns`)", program("field/alone", &["users"])),
    case("alone_times", "makes and enters a time namespace", program("field/alone", &["times"])),
    case(
        "alone_groups",
        "keeps rights when it changes its user, then raises one and changes its groups",
        program("field/alone", &["groups"]),
    ),
    case(
        "alone_rights",
        "gives its rights up, and looks whether a thread has kept them",
        program("field/alone", &["rights"]),
    ),
    case("alone_exec", "makes a user namespace, then becomes another program", program("field/alone", &["exec"])),
    case("alone_again", "makes such calls again and again while pages leave", program("field/alone", &["again"])),
    case("alone_threads", "makes them with a second thread, which computes", program("field/alone", &["threads"])),
    case(
        "counted",
        "counts its threads in `/proc/self/stat`, as CPython does after a fork; so do its children",
        program("field/counted", &[]),
    ),
    case("alone_commands", "unshare(1) and nsenter(1)", script(NAMESPACES)).near(),
];

const NAMESPACES: &str = "unshare -U true; echo user $?; unshare -Ur --fork true; echo fork $?; \
    unshare -Urp --fork true; echo pid $?; unshare -m true; echo mounts $?; \
    nsenter -t $$ -m true; echo enter $?; nsenter -t $$ -U true; echo own $?";

const ENDS: [Case; 5] = [
    case("last_raw", "its only thread leaves by the plain exit call", program("leaves", &["raw", "32"])),
    case("last_worker", "its first thread leaves, then the last other one", program("leaves", &["worker", "32"])),
    case("last_clone", "a cloned child leaves so", program("leaves", &["clone", "32"])),
    case("last_at_once", "children leave so at once", program("leaves", &["at-once", "32"])),
    case("last_vfork", "a child of vfork leaves so", program("leaves", &["vfork", "32"])),
];

const CONFINED: [Case; 8] = [
    case(
        "filter_kills",
        "a filter that allows what libc needs and kills for the rest",
        program("confined", &["pages", "kill"]),
    ),
    case("filter_answers", "the same with an error for the rest", program("confined", &["pages", "errno"])),
    case("filter_of_all", "a filter for all threads (`TSYNC`)", program("confined", &["pages", "kill", "tsync"])),
    case("filter_then_calls", "system calls on far memory under a filter", program("confined", &["calls", "errno"])),
    case("filter_then_fork", "a fork under a filter", program("confined", &["fork", "kill"])),
    case("strict", "seccomp's strict mode", program("confined", &["strict", "kill"])).but(STRICT, STRICT),
    case("strict_child", "a child in seccomp's strict mode", program("field/strict_child", &[]))
        .but(STRICT, STRICT)
        .near(),
    case("filter_too_long", "a filter of 4,000 instructions", program("confined", &["long", "kill"])).but(LONG, LONG),
];

const STRICT: Outcome = Named("strict mode, under which far memory cannot be served");
const LONG: Outcome = Named("it has 4000 instructions, and no room");

const OUTSIDE: [Case; 5] = [
    case("environment_cleared", "starts a program without the run's environment", script("env -i $PROGRAM 32; true"))
        .but(OUTSIDE_NAMED, OUTSIDE_NAMED)
        .near(),
    case("mapped_bare", "maps 32 MiB by the instruction itself", program("outside", &["32", "bare"]))
        .but(Named("a part of its memory"), Named("a part of its memory"))
        .near(),
    case(
        "started_inside",
        "starts programs of its own: all share one budget",
        script("for i in 1 2 3; do $PROGRAM 24 > $i & done; wait; cat 1 2 3"),
    ),
    case(
        "namespaces",
        "starts programs in PID namespaces",
        script("for i in 1 2 3; do unshare -pf sh -c \"$PROGRAM 24; true\" > $i & done; wait; cat 1 2 3"),
    )
    .near(),
    // Somebody without rights may not make such a namespace, natively neither.
    case(
        "namespace_with_proc",
        "starts a program in a PID namespace with a `/proc` of its own",
        script("unshare -pf --mount-proc sh -c \"$PROGRAM 24; true\""),
    )
    .near(),
];

const OUTSIDE_NAMED: Outcome = Named("without the run's environment");

const fn script(script: &'static str) -> Proof {
    Proof::Script(script, "outside")
}

const UNMANAGED: Outcome = Named("is not managed and has no bound");
const EMULATOR: Outcome = Refused("qemu-x86_64 emulates a processor");
const PROOT: Outcome = Refused("proot maps the programs that it runs at addresses of far memory");
const VALGRIND: Outcome = Refused("it runs under Valgrind");

const OTHERS: [Case; 14] = [
    case("mpi", "Open MPI, two ranks", Proof::Test("lifecycle::real::mpi")),
    case("sbcl", "SBCL", Proof::Test("lifecycle::real::sbcl")),
    case("file", "file(1), which confines itself", Proof::Test("lifecycle::real::file")),
    case("collector", "Boehm's collector, incremental", Proof::Test("lifecycle::real::collector")),
    case(
        "mimalloc",
        "CPython with mimalloc preloaded, behind Hinterland and before it",
        Proof::Test("lifecycle::real::mimalloc"),
    ),
    case("jemalloc", "the same with jemalloc", Proof::Test("lifecycle::real::jemalloc")),
    case(
        "racket",
        "Racket CS, which asks for all of its memory with `MAP_32BIT`: below 2 GiB it is the kernel's",
        Proof::Test("lifecycle::real::racket"),
    )
    .but(UNMANAGED, UNMANAGED),
    case(
        "chromium",
        "Chromium, headless: a page whose script visits and replaces 160 MiB of strings in random order, with more than 10,000 major faults",
        Proof::Test("lifecycle::real::chromium"),
    ),
    case(
        "chromium_sandboxed",
        "the same in its sandbox: each renderer is the process 1 of a PID namespace, without a file system",
        Proof::Test("lifecycle::real::chromium_sandboxed"),
    ),
    case(
        "zgc",
        "the JVM with ZGC, whose heap is a shared mapping: the kernel's, and counted as such",
        Proof::Test("lifecycle::real::zgc"),
    ),
    case(
        "python_fork",
        "CPython from 3.12 on, which warns at a fork of a process with several threads",
        Proof::Test("lifecycle::real::python_fork"),
    ),
    case("proot", "echo in PRoot", Proof::Test("lifecycle::real::proot")).but(PROOT, PROOT),
    case("valgrind", "echo under Valgrind", Proof::Test("lifecycle::real::valgrind")).but(VALGRIND, VALGRIND),
    case("qemu", "echo in QEMU's emulation of a process", Proof::Test("lifecycle::real::qemu")).but(EMULATOR, EMULATOR),
];
