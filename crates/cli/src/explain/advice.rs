//! Advice: what the user might change, with the figures that it follows from. The thresholds are where a change begins to pay.

use super::findings::Findings;
use crate::report::{count, percent};
use serde::Serialize;

/// Requests below which nothing is advised: a run that hardly pages has no pattern.
const REQUESTS_MIN: u64 = 1000;
/// A share that is worth a word.
const MUCH: f64 = 0.3;
/// Most of something.
const MOST: f64 = 0.7;

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Advice {
    /// What to change; `nothing` when there is nothing.
    pub change: &'static str,
    /// The figures that say so.
    pub because: String,
}

/// The advice that the findings give, at least one piece.
pub fn of(findings: &Findings) -> Vec<Advice> {
    let saw = &findings.saw;
    if saw.requests < REQUESTS_MIN {
        let because = format!("{} requests are too few to tell anything", count(saw.requests));
        return vec![Advice { change: "nothing", because }];
    }
    let mut advice: Vec<Advice> =
        [off(findings), strides(findings), waste(findings), overtaken(findings), late(findings)]
            .into_iter()
            .chain([tight(findings), outrun(findings), minor(findings), irregular(findings)])
            .flatten()
            .collect();
    if advice.is_empty() {
        advice.push(rest(findings));
    }
    advice
}

/// Where no figure stands out.
fn rest(findings: &Findings) -> Advice {
    let Findings { saw, did, .. } = findings;
    let [coverage, regular] = [did.coverage.unwrap_or(0.0), saw.patterns.sequential + saw.patterns.strided];
    let (change, because) = if coverage >= MUCH {
        ("nothing", format!("prefetching covered {} of the requests for content", percent(coverage)))
    } else if regular >= MUCH {
        let because = format!(
            "{} of the requests are sequential or strided, and prefetching covered {}",
            percent(regular),
            percent(coverage)
        );
        ("another --prefetch", because)
    } else {
        let because = format!(
            "{} of the requests follow no step; the program waited for {} of its time",
            percent(saw.patterns.irregular),
            percent(saw.waiting)
        );
        ("nothing", because)
    };
    Advice { change, because }
}

/// Regular requests without a prefetcher.
fn off(findings: &Findings) -> Option<Advice> {
    let patterns = &findings.saw.patterns;
    let regular = patterns.sequential + patterns.strided;
    let because = format!("{} of the requests are sequential or strided, and nothing is prefetched", percent(regular));
    let change = match (findings.prefetcher.as_str(), findings.read_ahead_pages) {
        ("none", _) => "leave --prefetch out",
        (_, Some(0)) => "leave --read-ahead 0 out",
        _ => return None,
    };
    (regular >= MUCH).then_some(Advice { change, because })
}

/// Steps that the prefetcher does not know.
fn strides(findings: &Findings) -> Option<Advice> {
    let knows_one_page = ["next-n", "next-n-line", "readahead", "readahead-vma"];
    let strided = findings.saw.patterns.strided;
    let because =
        format!("{} of the requests are strided, and {} follows single pages", percent(strided), findings.prefetcher);
    let unknown = knows_one_page.contains(&findings.prefetcher.as_str()) && strided >= MUCH;
    unknown.then_some(Advice { change: "leave --prefetch out", because })
}

/// Prefetched pages that are not used.
fn waste(findings: &Findings) -> Option<Advice> {
    let did = &findings.did;
    let accuracy = did.accuracy.filter(|accuracy| *accuracy < 0.5 && did.watched >= 100)?;
    let change =
        if did.coverage.is_none_or(|coverage| coverage < 0.1) { "--prefetch none" } else { "a smaller --read-ahead" };
    let because = format!(
        "of {} prefetched pages that were left unmapped only {} were used",
        count(did.watched),
        percent(accuracy)
    );
    Some(Advice { change, because })
}

/// Pages prefetched too late.
fn late(findings: &Findings) -> Option<Advice> {
    let (did, saw) = (&findings.did, &findings.saw);
    let because = format!(
        "{} faults waited for pages that were being prefetched already, beside {} for other pages: far memory is slower than the \
         program reads",
        count(did.late),
        count(saw.major)
    );
    (did.late * 4 > saw.major.max(REQUESTS_MIN))
        .then_some(Advice { change: "a larger --read-ahead, or faster far memory", because })
}

/// Windows that were never fetched.
fn overtaken(findings: &Findings) -> Option<Advice> {
    let did = &findings.did;
    let because = format!(
        "of {} windows {} were dropped for newer ones before the read-ahead thread fetched them",
        count(did.windows),
        count(did.windows_dropped)
    );
    (did.windows_dropped * 4 > did.windows)
        .then_some(Advice { change: "a processor for the read-ahead thread", because })
}

/// Windows that found no frames.
fn tight(findings: &Findings) -> Option<Advice> {
    let did = &findings.did;
    let because = format!("of {} windows {} found no free frames", count(did.windows), count(did.windows_refused));
    let change = "more --local, or a smaller --read-ahead";
    (did.windows_refused * 4 > did.windows).then_some(Advice { change, because })
}

/// Windows whose pages the program fetched by major faults before the read-ahead thread did, which waits for a processor.
fn outrun(findings: &Findings) -> Option<Advice> {
    let did = &findings.did;
    let because = format!(
        "of {} pages in windows {} were prefetched, which covered {} of what the program needed: read-ahead cannot keep up",
        count(did.window_pages),
        count(did.fetched),
        percent(did.coverage.unwrap_or(0.0))
    );
    let change = match findings.fault_path.as_str() {
        "inline" => "a free processor, fewer threads, or --fault-path monitor",
        _ => "a free processor, or fewer threads",
    };
    let is_behind = did.window_pages > 4 * did.fetched && did.coverage.is_none_or(|coverage| coverage < MUCH);
    let is_known_why = overtaken(findings).or_else(|| tight(findings)).is_some();
    (is_behind && !is_known_why).then_some(Advice { change, because })
}

/// Pages that had just been evicted.
fn minor(findings: &Findings) -> Option<Advice> {
    let saw = &findings.saw;
    let because =
        format!("{} of {} requests were for pages that had just been evicted", count(saw.minor), count(saw.requests));
    (saw.minor * 3 > saw.requests).then_some(Advice { change: "a little more --local", because })
}

/// Requests without a pattern.
fn irregular(findings: &Findings) -> Option<Advice> {
    let saw = &findings.saw;
    let because = format!(
        "{} of the requests follow no step, so no prefetcher can predict them; the program waited for {} of its time",
        percent(saw.patterns.irregular),
        percent(saw.waiting)
    );
    let costs = saw.waiting > 0.1 && saw.patterns.irregular >= MOST;
    costs.then_some(Advice { change: "more --local, or faster far memory", because })
}
