//! `--encrypt`: nothing of a program's memory is to be read where its pages are, and they come back all the same.

use super::nodes::{PATHS, Test, launch_with, trial};
use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::{Running, c_program};
use hinterland_tests::node::Node;
use hinterland_tests::suite::Trial;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Mebibytes that the program fills; a quarter is local.
const MEBIBYTES: u64 = 64;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| trials.push(trial(name, test));
    for path in PATHS {
        add(format!("lifecycle::encrypted::node::{path}"), Box::new(move |test| node(test, path)));
        add(format!("lifecycle::encrypted::file::{path}"), Box::new(move |test| file(test, path)));
        add(format!("lifecycle::encrypted::children::{path}"), Box::new(move |test| children(test, path)));
        add(format!("lifecycle::encrypted::damage::{path}"), Box::new(move |test| damage(test, path)));
    }
    trials
}

/// The words that fill the second half of each of the program's pages (`pattern_word` of tests/programs/c/pattern.h, version 1).
fn words() -> HashSet<u64> {
    let word = |page: u64| {
        let x = page.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0xd134_2543_de82_ef95 + 1);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ (x >> 27)
    };
    (0..MEBIBYTES * 256).map(word).collect()
}

/// How many of the aligned words of `bytes` are the program's.
fn known(bytes: &[u8], words: &HashSet<u64>) -> usize {
    let (chunks, _) = bytes.as_chunks::<8>();
    // Most of a file that is as large as it may become is a hole.
    chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).filter(|word| *word != 0 && words.contains(word)).count()
}

/// How many words of the program's are to be found in the memory of a process.
fn in_memory(pid: i32) -> Result<usize> {
    let (memory, words) = (File::open(format!("/proc/{pid}/mem"))?, words());
    let mut found = 0;
    let mut buffer = vec![0; 1 << 20];
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let (Some((begin, end)), true) = (range.split_once('-'), rights.starts_with("rw")) else { continue };
        let (mut at, end) = (u64::from_str_radix(begin, 16)?, u64::from_str_radix(end, 16)?);
        while at < end {
            let bytes = usize::try_from(end - at)?.min(buffer.len());
            let read = memory.read_at(&mut buffer[..bytes], at).unwrap_or(0);
            if read == 0 {
                break;
            }
            found += known(&buffer[..read], &words);
            at += read as u64;
        }
    }
    Ok(found)
}

/// How many words of the program's are to be found in the nameless files that it has open, and how long those are.
fn in_files(running: &Running) -> Result<(usize, u64)> {
    let (words, mut found, mut len) = (words(), 0, 0);
    for pid in running.below() {
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            if target.starts_with(&running.directory) && target.to_string_lossy().contains("(deleted)") {
                let bytes = std::fs::read(entry.path()).with_context(|| target.display().to_string())?;
                found += known(&bytes, &words);
                len += bytes.len() as u64;
            }
        }
    }
    Ok((found, len))
}

/// A program that has filled its memory and reads it again and again.
fn holding(test: &str, path: &str, far: &str, more: &[&str]) -> Result<Running> {
    let program = c_program("hold", &[])?.display().to_string();
    let flags = [&["--fault-path", path, "--far", far], more].concat();
    let mebibytes = MEBIBYTES.to_string();
    let mut running = launch_with(test, &flags, &[&program, &mebibytes, "stay"])?.start()?;
    running.wait_for("ready")?;
    Ok(running)
}

fn node(test: &str, path: &str) -> Result<()> {
    for (name, flags, readable) in [("plain", &[][..], true), ("encrypted", &["--encrypt"][..], false)] {
        // A new one each time: buffers that a node has given back keep what was in them.
        let node = Node::start(&format!("{test}-{name}"), "1G")?;
        let running = holding(&format!("{test}-{name}"), path, &node.patient_url(), flags)?;
        let found = in_memory(node.pid())?;
        ensure!((found > 100_000) == readable && (found == 0) != readable, "{name}: {found} words were found");
        drop(running);
        node.end()?;
    }
    Ok(())
}

fn file(test: &str, path: &str) -> Result<()> {
    for (name, flags, readable) in [("plain", &[][..], true), ("encrypted", &["--encrypt"][..], false)] {
        // Through the page cache: what was written is read here.
        let directory = std::fs::canonicalize(hinterland_tests::places::tests())?.join("lifecycle");
        let test = format!("{test}-{name}").replace("::", "-");
        let far = format!("file:{}?size=1G&direct=off", directory.join(&test).join("tmp").display());
        let running = holding(&test, path, &far, flags)?;
        let (found, len) = in_files(&running)?;
        ensure!(len > 16 << 20, "{name}: only {len} bytes were looked at");
        ensure!((found > 100_000) == readable && (found == 0) != readable, "{name}: {found} words were found");
    }
    Ok(())
}

/// Forked children, and theirs, over a node and over a file.
fn children(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let program = c_program("children", &[])?.display().to_string();
    for (name, far) in [("node", node.patient_url().as_str()), ("file", "file:.?size=1G")] {
        for way in ["fork", "forks", "posix_spawn"] {
            let flags = ["--fault-path", path, "--far", far, "--encrypt"];
            let ended = launch_with(&format!("{test}-{name}-{way}"), &flags, &[&program, way])?.run()?;
            ended.expect(0, "ok")?.expect_paging()?;
            ensure!(ended.stats()?["backends"][0]["encrypted"] == true, "{}", ended.stats()?);
            ensure!(ended.stderr.contains("(encrypted)"), "the summary does not say it: {}", ended.stderr);
        }
    }
    node.end()?;
    Ok(())
}

/// One page in a hundred comes back with a flipped bit: the tag tells, and the message names the place.
fn damage(test: &str, path: &str) -> Result<()> {
    let node = Node::start(test, "1G")?;
    let program = c_program("hold", &[])?.display().to_string();
    // A file is named by its whole path.
    for (name, far, place) in [("node", &*node.patient_url(), &*node.url), ("file", "file:.?size=1G", "file:/")] {
        let separator = if far.contains('?') { '&' } else { '?' };
        let far = format!("{far}{separator}fault=flip:0.01&seed=3");
        let flags = ["--fault-path", path, "--far", &far, "--encrypt"];
        let ended = launch_with(&format!("{test}-over-{name}"), &flags, &[&program, "64"])?.run()?;
        ended.expect(125, "")?.expect_refusal(&["it is not what was stored there last (wrong tag)"])?;
        ensure!(ended.stderr.contains(place), "{place} is not named in: {}", ended.stderr);
    }
    node.end()?;
    Ok(())
}
