//! The paths to far memory of a running run, and the effect of a change on them. Pure.

use hinterland_abi::{PATH_CHANGES_MAX, PathChange, TEXT_BYTES};
use hinterland_backend::PATHS_MAX;

/// The changes since the start when `added` and `dropped` follow those `before`. `start` are the paths of the start. What is there already
/// is not added again: a command that was given up, and holds all the same, may be repeated.
///
/// # Errors
/// What cannot be, for the user.
pub fn changed(
    start: &[String],
    before: &[PathChange],
    added: &[String],
    dropped: &[String],
) -> Result<Vec<PathChange>, String> {
    let mut changes = before.to_vec();
    let after = |changes: &[PathChange]| {
        let mut now = start.to_vec();
        PathChange::apply_all(changes, &mut now);
        now
    };
    if let Some(url) = added.iter().find(|url| dropped.contains(url)) {
        return Err(format!("--add-far and --drop-far both name '{url}': is it to come or to go?"));
    }
    for url in added {
        // One byte for the kind of change, one for the end.
        if url.len() > TEXT_BYTES - 2 || url.contains(char::is_whitespace) {
            let most = TEXT_BYTES - 2;
            return Err(format!(
                "--add-far: '{url}' has blanks or more than {most} bytes, which a run under way cannot be told"
            ));
        }
        if after(&changes).contains(url) {
            continue;
        }
        // What was dropped since the start is as if it had stayed.
        match changes.iter().rposition(|change| *change == PathChange::Drop(url.clone())) {
            Some(at) => drop(changes.remove(at)),
            None => changes.push(PathChange::Add(url.clone())),
        }
    }
    for url in dropped {
        let now = after(&changes);
        if !now.contains(url) {
            return Err(format!("--drop-far: there is no path '{url}'; there are {}", now.join(", ")));
        }
        if now.len() == 1 {
            return Err(format!("--drop-far: '{url}' is the only path to far memory; add another one first"));
        }
        // What was added since the start is as if it had never been.
        match changes.iter().rposition(|change| *change == PathChange::Add(url.clone())) {
            Some(at) => drop(changes.remove(at)),
            None => changes.push(PathChange::Drop(url.clone())),
        }
    }
    if changes.len() > PATH_CHANGES_MAX {
        return Err(format!(
            "the paths of this run have changed {PATH_CHANGES_MAX} times, which is the most that they can"
        ));
    }
    let paths = after(&changes).len();
    if paths > PATHS_MAX {
        return Err(format!(
            "--add-far: that would be {paths} paths to far memory, and {PATHS_MAX} are the most; drop one with --drop-far"
        ));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(urls: &[&str]) -> Vec<String> {
        urls.iter().map(|url| (*url).to_owned()).collect()
    }

    #[test]
    fn changes_add_up_and_what_came_and_went_takes_no_place() {
        let start = urls(&["compressed:1G"]);
        let first = changed(&start, &[], &urls(&["unix:/a", "unix:/b"]), &[]).unwrap();
        assert_eq!(first, [PathChange::Add("unix:/a".into()), PathChange::Add("unix:/b".into())]);
        let second = changed(&start, &first, &[], &urls(&["unix:/a", "compressed:1G"])).unwrap();
        assert_eq!(second, [PathChange::Add("unix:/b".into()), PathChange::Drop("compressed:1G".into())]);
        let mut now = start.clone();
        PathChange::apply_all(&second, &mut now);
        assert_eq!(now, ["unix:/b"]);
        let third = changed(&start, &second, &start, &urls(&["unix:/b"])).unwrap();
        assert_eq!(third, []);
        // What is there is not opened again, whenever it came.
        assert_eq!(changed(&start, &first, &urls(&["unix:/a", "compressed:1G", "unix:/b"]), &[]).unwrap(), first);
        assert_eq!(changed(&start, &[], &urls(&["unix:/a", "unix:/a"]), &[]).unwrap(), first[..1]);
        // One for another in a single step.
        assert!(changed(&start, &[], &urls(&["unix:/a"]), &start).is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let start = urls(&["compressed:1G", "unix:/a"]);
        let words = |added: &[&str], dropped: &[&str]| changed(&start, &[], &urls(added), &urls(dropped)).unwrap_err();
        assert!(words(&[], &["unix:/c"]).contains("no path 'unix:/c'; there are compressed:1G, unix:/a"));
        assert!(words(&[], &["unix:/a", "compressed:1G"]).contains("'compressed:1G' is the only path"));
        assert!(words(&[&"x".repeat(300)], &[]).contains("more than 254 bytes"));
        for both in ["unix:/c", "unix:/a"] {
            assert!(
                words(&["unix:/d", both], &["compressed:1G", both]).contains(&format!("both name '{both}'")),
                "{both}"
            );
        }
        let many: Vec<String> = (0..30).map(|number| format!("unix:/{number}")).collect();
        assert!(changed(&start, &[], &many, &[]).unwrap_err().contains("have changed 24 times"));
        // A process that starts then would have more paths than it can open.
        let more = changed(&start, &[], &many[..15], &[]).unwrap_err();
        assert!(more.contains("--add-far: that would be 17 paths to far memory, and 16 are the most"), "{more}");
        let sixteen = changed(&start, &[], &many[..14], &[]).expect("16 paths");
        assert!(changed(&start, &sixteen, &many[14..15], &[]).unwrap_err().contains("17 paths"));
        assert_eq!(changed(&start, &sixteen, &many[14..15], &start[..1]).expect("16 paths").len(), 16);
    }
}
