//! `hinterland balance` from outside: both public formats, what it prints and draws, what it refuses.

use crate::launcher::hinterland;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

fn balance(directory: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = hinterland();
    command.arg("balance").args(arguments).current_dir(directory);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may have refused without reading.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("its end")
}

/// Servers of 2018 that use so many per cent at each of several moments.
fn of_2018(servers: &[&[u32]]) -> String {
    let records = |(server, moments): (usize, &&[u32])| -> String {
        moments
            .iter()
            .enumerate()
            .map(|(moment, used)| format!("m_{server},{},50,{used},,,40.1,30.2,5\n", moment * 10))
            .collect()
    };
    servers.iter().enumerate().map(records).collect()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Means 15, 20, 50, 90. At α 30 and β 60 by hand: (15 + 10) / 4 + 30 / 4.
#[test]
fn effectiveness_is_that_of_a_calculation_by_hand() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("usage.csv"), of_2018(&[&[10, 20], &[20], &[0, 100], &[85, 95]])).unwrap();
    let found = json(&balance(here, &["usage.csv", "--alpha", "30", "--beta", "60", "--json"], ""));
    assert_eq!(found["most"]["effectiveness"], 13.75);
    assert_eq!((&found["most"]["low"], &found["most"]["high"]), (&50.0.into(), &25.0.into()));
    assert_eq!(
        (&found["server_count"], &found["record_count"], &found["trace"]),
        (&4.into(), &7.into(), &"Alibaba 2018".into())
    );
    // At each moment: distances 20, 10, 10, 30 below 30, and 40, 25, 35 above 60, of seven.
    let moments = ["-", "--alpha", "30", "--beta", "60", "--of", "moments", "--json"];
    let found = json(&balance(here, &moments, &fs::read_to_string(here.join("usage.csv")).unwrap()));
    let effectiveness = found["most"]["effectiveness"].as_f64().unwrap();
    assert!((effectiveness - (70.0 + 100.0) / 7.0).abs() < 1e-9, "{effectiveness}");
    // 2017: the server stands second, and has a fraction.
    fs::write(here.join("2017.csv"), "0,7,1,10.5,1,1,1,1\n300,8,1,60.5,1,1,1,1\n").unwrap();
    let found = json(&balance(here, &["2017.csv", "--alpha", "31", "--json"], ""));
    assert_eq!((&found["trace"], &found["most"]["effectiveness"]), (&"Alibaba 2017".into(), &25.0.into()));
}

#[test]
fn the_table_and_the_picture_are_of_all_pairs() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("usage.csv"), of_2018(&[&[10], &[20], &[50], &[90]])).unwrap();
    let output = balance(here, &["usage.csv", "--alpha", "30:90", "--svg", "out.svg"], "");
    let (text, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && words.is_empty(), "{words}");
    assert!(
        text.contains("Alibaba 2018: 4 servers, 4 records; by servers, 42.50 % of memory is used on average"),
        "{text}"
    );
    // At 90: 80 + 70 + 40 of four.
    assert!(text.contains("most: 47.50 % with alpha 90 %, beta 90 %"), "{text}");
    assert!(text.lines().count() <= 4 + 16, "{text}");
    let picture = fs::read_to_string(here.join("out.svg")).unwrap();
    assert!(picture.contains("<svg") && picture.matches("<rect").count() > 61 * 62 / 2, "a cell for each pair");
}

#[test]
fn what_cannot_be_read_or_drawn_is_refused_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let good = of_2018(&[&[10], &[20]]);
    fs::write(here.join("good.csv"), &good).unwrap();
    fs::write(here.join("bad.csv"), [&good, "m_1,20,1,lots,,,,,\n"].concat()).unwrap();
    fs::write(here.join("empty.csv"), "").unwrap();
    for (arguments, words) in [
        (&["absent.csv"][..], "absent.csv: No such file"),
        (&["."], "Is a directory"),
        (&["empty.csv"], "no record says what a server used"),
        (&["bad.csv"], "bad.csv: line 3: 'lots' is no utilisation"),
        (&["good.csv", "--alpha", "90:30"], "does not lead from a smaller to a larger"),
        (&["good.csv", "--alpha", "50", "--beta", "10:40"], "no pair of thresholds"),
        (&["good.csv", "--svg", "good.csv"], "it is the trace, and would be replaced"),
        (&["good.csv", "--svg", "absent/out.svg"], "--svg: absent/out.svg: "),
    ] {
        let output = balance(here, arguments, "");
        let found = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(125) && found.contains(words), "{arguments:?}: {found}");
    }
    assert_eq!(fs::read_to_string(here.join("good.csv")).unwrap(), good);
}
