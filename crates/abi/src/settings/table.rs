//! The table of settings. Where a default was decided: `evict` 0005, `prefetch` 0028, `fault-path` 0011 (docs/decisions).

use super::choices::{EvictName, FaultPathName, GranularityName, HeapMode, PlacementName, PrefetchName};
use super::kind::{
    BLOCK, BUDGET, CACHE, COPIES, COUNT, CPUS, EnvError, MICROSET, PAGES, REPLICAS, SLOWDOWN, SWITCH, TAPE_PAGES, TEXT,
    WORDS, choice,
};
use super::setting::Form::{Choice, Many, One, Switch};
use super::setting::{Setting, Sources, settings};
use hinterland_units::{Budget, ByteCount, CopyBound, Slowdown};

settings! {
    /// What a managed program needs to know.
    struct Settings {
        LOCAL "local" local: Option<Budget> = BUDGET, One("SIZE|PCT%ram"), Run,
            "Bound on the program's local pages: a size (512M, 2G), or a share of the cgroup limit or the RAM (25%ram); at least 16M",
            "what --ram says; without that, 80 % of the cgroup limit or of the available memory", "1G";
        RAM "ram" ram: Option<Budget> = BUDGET, One("SIZE|PCT%ram"), Run,
            "Bound on local pages, compressed store and tables together",
            "none with --local; else as --local's", "2G";
        FAR "far" far: Vec<String> = WORDS, Many("URL"), Run,
            "Where cold pages go; repeat for several, fastest first: compressed[:CAP], numa:NODE[:SIZE] (plain pages in memory of a NUMA node, not counted by --ram), file:PATH, tcp://HOST, unix:/PATH, etcd://HOST/POOL",
            "compressed RAM, then a file", "compressed:4G file:/var/tmp?size=16G";
        PLACEMENT "placement" placement: PlacementName = choice(), Choice("PLACEMENT", PlacementName::CHOICES), Run,
            "Which of several --far a page goes to",
            "tiers";
        COSTS "costs" costs: Vec<String> = WORDS, Many("FILE|KIND=COST"), Run,
            "What far memory costs beside local RAM, for --placement auto: a file as `hinterland advise --example-costs` writes it, or a kind of --far and its cost; compressed RAM counts the bytes that pages take",
            "tcp, unix, etcd and numa 0.5, file 0.05", "/etc/hinterland/costs.toml";
        REPLICAS "replicas" replicas: Option<usize> = REPLICAS, One("N"), Run,
            "Memory nodes of a pool (tcp://A,tcp://B,… or etcd://HOST/POOL) that keep each page; the run survives the loss of N − 1 nodes",
            "1";
        ENCRYPT "encrypt" encrypt: bool = SWITCH, Switch, Run,
            "Encrypt pages before they leave the program's process, for files and memory nodes",
            "";
        TLS "tls" tls: String = TEXT, One("CERT,KEY"), Run,
            "Certificate of this side and its private key, PEM files; with --tls-ca",
            "", "/etc/hinterland/tls.pem,/etc/hinterland/tls.key";
        TLS_CA "tls-ca" tls_ca: String = TEXT, One("CA"), Run,
            "The CA that has signed the other side's certificates, a PEM file",
            "", "/etc/hinterland/ca.pem";
        KEY_FILE "key-file" key_file: String = TEXT, One("FILE"), Run,
            "A secret file that both sides have, instead of certificates: at least 32 random bytes",
            "", "/etc/hinterland/far.key";
        INSECURE_LOOPBACK "insecure-loopback" insecure_loopback: bool = SWITCH, Switch, Run,
            "Without credentials, allow loopback addresses, to which any user of this machine can connect, and where any may listen in a node's place",
            "";
        HEAP "heap" heap: HeapMode = choice(), One("all|large"), Run,
            "Which allocations are far: all, or large (of at least 64 KiB)",
            "all";
        EVICT "evict" evict: EvictName = choice(), Choice("POLICY", EvictName::CHOICES), Run,
            "Eviction policy",
            "s3-fifo";
        COPIES "copies" copies: Option<CopyBound> = COPIES, One("PCT|peak"), Run,
            "Stored copies of local pages that are retained where they take RAM, so that a page which leaves unchanged is not compressed again: those of PCT percent of the local pages, or peak: as many as fit below the most RAM that the store has taken. They are dropped first when room is short",
            "those of a 32nd of the local pages", "12%";
        PREFETCH "prefetch" prefetch: PrefetchName = choice(), Choice("PREFETCHER", PrefetchName::CHOICES), Run,
            "Prefetcher",
            "auto";
        READ_AHEAD "read-ahead" read_ahead_pages: Option<u32> = PAGES, One("PAGES"), Run,
            "Largest read-ahead window in pages, 0 to 512; 0 turns read-ahead off",
            "64 with auto, streams and next-n, more where the link asks for it; 8 with the others", "64";
        PREFETCH_CACHE "prefetch-cache" prefetch_cache: Option<ByteCount> = CACHE, One("SIZE"), Run,
            "Bound on prefetched pages that are not known to be used, at least 1M; pages beyond it are evicted first",
            "what the windows need", "16M";
        GRANULARITY "granularity" granularity: GranularityName = choice(), Choice("GRANULARITY", GranularityName::CHOICES), Run,
            "How much comes to a thread that waits for a page: the page, or pages around it as well",
            "page";
        BLOCK "block" block: Option<ByteCount> = BLOCK, One("SIZE|auto"), Run,
            "Size of a block: a power of two from 4K (the page alone) to 2M, bounded to a 64th of local memory, or auto: bandwidth times delay of the link, 16K to 1M. Where pages come alone, a size turns --granularity auto on",
            "auto", "64K";
        TAPE_BATCH "tape-batch" tape_batch_pages: Option<u32> = TAPE_PAGES, One("PAGES|auto"), Run,
            "With --tape: pages that are requested at a time (BATCH_SIZE)",
            "auto: a fifth of what was planned to be ahead, 100 at most", "100";
        TAPE_LOOKAHEAD "tape-lookahead" tape_lookahead_pages: Option<u32> = TAPE_PAGES, One("PAGES|auto"), Run,
            "With --tape: pages that are requested before the program is a batch away from them (LOOKAHEAD)",
            "auto: the rest of it, 400 at most", "400";
        CPUS "cpus" cpus: Option<u32> = CPUS, One("N|auto"), Run,
            "Processors that the pager's own threads may take at once, in all processes of the run (evictor, read-ahead, monitors, maintenance), or auto: all that the program may use; on the inline path the program's threads serve their faults themselves",
            "auto", "2";
        FAULT_PATH "fault-path" fault_path: FaultPathName = choice(), One("auto|monitor|inline"), Run,
            "Fault path: auto, monitor (a thread beside the program's), inline (the thread that faults)",
            "auto";
        FEATURES "features" features: String = TEXT, One("SET"), Run,
            "Use the features of this kernel only: 5.15, 6.1, 6.8, 6.12, all, no-uffd",
            "all";
        TRACE "trace" trace: String = TEXT, One("FILE"), Launcher,
            "File for a trace of the run's first process",
            "none is recorded";
        MICROSET "microset" microset_pages: Option<u32> = MICROSET, One("PAGES"), Launcher,
            "Pages that are mapped at a time while a trace is recorded, 1 to 1048576: fewer record more references, and take longer",
            "1024 (or half of the local budget, if that is less)";
        TAPE_MEMORY "tape-memory" tape_memory: String = TEXT, One("FILE"), Launcher,
            "The tapes of the run, as the launcher has checked them",
            "none is followed";
        PROFILE_MEMORY "profile-memory" profile_memory: String = TEXT, One("FILE"), Launcher,
            "Where a profile of the run is taken",
            "none is taken";
        LEDGER "ledger" ledger: String = TEXT, One("FILE"), Launcher,
            "Path of the ledger, the statistics in shared memory",
            "no launcher listens";
        HANDOVER "handover" handover: String = TEXT, One("SOCKET"), Launcher,
            "Path of the socket at which the launcher hands these files to processes that cannot open them",
            "none";
        FILTERS "filters" filters: Option<u32> = COUNT, One("NUMBER"), Launcher,
            "Filters of system calls under which the launcher runs: a process under more was confined by the program",
            "not known";
    }

    /// What only the launcher needs to know.
    struct LauncherSettings {
        TAPE "tape" tape: String = TEXT, One("FILE|FOLDER/|auto"), Run,
            "Follow a tape of this program, made by `hinterland tape`, or one that is planned now from its trace; --local 20% is of the recorded peak then. FOLDER/: each process of the run follows the tape of its own program. auto: record this run, and let later ones with the same arguments follow it",
            "none is followed", "fft.tape";
        SLOWDOWN "slowdown" slowdown: Option<Slowdown> = SLOWDOWN, One("FACTOR"), Run,
            "Hold the program within this factor of its own time with all memory local, with the least local memory: found and adjusted while it runs; --local is the ceiling",
            "the budget stays as it is", "1.2";
        STATS "stats" stats: String = TEXT, One("FILE|-"), Run,
            "Write the run's figures as JSON to FILE, or to stdout (-)",
            "", "hinterland.json";
        QUIET "quiet" quiet: bool = SWITCH, Switch, Run,
            "No summary at the end",
            "";
        ALLOW_UNMANAGED "allow-unmanaged" allow_unmanaged: bool = SWITCH, Switch, Run,
            "Run a program that cannot be managed all the same, with a warning",
            "";
        STRICT "strict" strict: bool = SWITCH, Switch, Run,
            "End the run with 125 when one of its processes holds memory outside the budget: more than 16 MiB, and of a managed process more than a tenth of the budget",
            "";
    }

    names {
        CONFIG "config" = One("FILE"), FlagOrVariable,
            "Settings file",
            "$XDG_CONFIG_HOME/hinterland/config.toml (~/.config/hinterland/config.toml), if it is there";
        LIBRARY "library" = One("FILE"), Variable,
            "The library that is preloaded into the program",
            "libhinterland.so beside the command, in ../lib or in ../lib/hinterland";
    }
}
