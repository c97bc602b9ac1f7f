//! Replays decision logs: `HINTERLAND_TEST_DECISIONS=FOLDER hinterland run …` with a build with assertions, then
//! `cargo run -p hinterland-sim --example replay -- FOLDER/*`.

use hinterland_paging::{HEAD_BYTES, Log, entry_bytes};
use hinterland_sim::replay;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for path in std::env::args_os().skip(1) {
        if let Err(error) = replayed(path.as_ref()) {
            eprintln!("{}: {error}", path.display());
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn replayed(path: &Path) -> Result<(), Box<dyn Error>> {
    let (mut file, mut head) = (File::open(path)?, [0; HEAD_BYTES]);
    file.read_exact(&mut head)?;
    let mut bytes = head.to_vec();
    file.take(entry_bytes(&head)?).read_to_end(&mut bytes)?;
    println!("{}: {:?}", path.display(), replay(&Log::read(&bytes)?)?);
    Ok(())
}
