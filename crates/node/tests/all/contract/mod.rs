//! The contract of backends, held over a real node: the same tests as for the others, by TCP, with and without turns on its link, and on a UNIX
//! socket with shared slabs.
#![allow(clippy::duplicate_mod, reason = "the same tests, with another meaning of `anywhere`")]

#[path = "."]
mod tcp {
    fn anywhere() -> String {
        "tcp://127.0.0.1:0".into()
    }

    const LINK: Option<u64> = None;

    mod cases;
}

#[path = "."]
mod turns {
    fn anywhere() -> String {
        "tcp://127.0.0.1:0".into()
    }

    const LINK: Option<u64> = Some(4_000_000_000);

    mod cases;
}

#[path = "."]
mod unix {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    fn anywhere() -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("hinterland-contract-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        format!("unix:{}", std::env::temp_dir().join(name).display())
    }

    /// There is no link.
    const LINK: Option<u64> = Some(1);

    mod cases;
}
