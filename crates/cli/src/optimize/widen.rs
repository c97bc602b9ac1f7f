//! What is tried next: more of the functions that wait longest and of the largest allocations (Mira §4.1); then, whether pages that are
//! walked may leave before others.

use crate::plan::{Eviction, Function, Plan, Site};
use crate::profile::{ProfileFile, choose};
use std::collections::HashSet;

/// What a round tries.
#[derive(Debug, PartialEq)]
pub struct Candidate {
    /// The plan, which has all of the best one's.
    pub plan: Plan,
    /// What it adds, in words.
    pub what: String,
}

/// See the module.
pub struct Widening {
    worst: f64,
    largest: f64,
    step: f64,
    depth: usize,
    /// Functions that were tried, by module and name: what was rolled back is not tried again.
    tried: HashSet<(String, String)>,
    /// Words on eviction that were tried.
    evictions: usize,
}

/// What is tried where the plan leaves eviction to what the compiler proves of each function alone: pages may be walked again by
/// others, or not.
const EVICTIONS: [(Eviction, &str); 2] = [(Eviction::Never, "evict = \"never\""), (Eviction::Soon, "evict = \"soon\"")];

impl Widening {
    pub fn new(worst: f64, largest: f64, step: f64, depth: usize) -> Widening {
        Widening { worst, largest, step, depth, tried: HashSet::new(), evictions: 0 }
    }

    /// The next plan, from the best one so far and a profile of the program that was built with it; only functions in files that
    /// `is_compiled` names. `None`: all was tried.
    pub fn next(
        &mut self,
        best: &Plan,
        profile: &ProfileFile,
        is_compiled: &dyn Fn(&str) -> bool,
    ) -> Option<Candidate> {
        self.wider(best, profile, is_compiled).or_else(|| self.evicting(best))
    }

    fn wider(&mut self, best: &Plan, profile: &ProfileFile, is_compiled: &dyn Fn(&str) -> bool) -> Option<Candidate> {
        while self.worst <= 1.0 || self.largest <= 1.0 {
            let (worst, largest) = (self.worst.min(1.0), self.largest.min(1.0));
            let chosen = choose(profile, worst, largest, self.depth);
            // All of it was looked at once both are whole.
            let next = |part: f64| if part < 1.0 { (part + self.step).min(1.0) } else { 2.0 };
            (self.worst, self.largest) = (next(self.worst), next(self.largest));
            let name = |function: &Function| (function.module.clone(), function.name.clone());
            let is_there = |function: &Function| best.functions.iter().any(|there| name(there) == name(function));
            let functions: Vec<Function> = chosen
                .functions
                .into_iter()
                .filter(|function| is_compiled(&function.module) && !is_there(function))
                .filter(|function| self.tried.insert(name(function)))
                .collect();
            if functions.is_empty() {
                continue;
            }
            let what = format!("worst {:.0} %, largest {:.0} %", worst * 100.0, largest * 100.0);
            let new_site = |site: &Site| {
                best.sites.iter().all(|there| (&there.function, there.line) != (&site.function, site.line))
            };
            let sites: Vec<Site> = chosen.sites.into_iter().filter(new_site).collect();
            let mut plan = Plan { program: chosen.program, build_id: chosen.build_id, measured: None, ..best.clone() };
            plan.functions.extend(functions);
            plan.sites.extend(sites);
            return Some(Candidate { plan, what });
        }
        None
    }

    /// Whether pages that the functions of the plan have walked leave before others.
    fn evicting(&mut self, best: &Plan) -> Option<Candidate> {
        let is_open = |function: &Function| function.evict.is_none() && function.fetch;
        let (evict, what) = EVICTIONS.get(self.evictions)?;
        self.evictions += 1;
        if !best.functions.iter().any(is_open) {
            return None;
        }
        let mut plan = Plan { measured: None, ..best.clone() };
        for function in plan.functions.iter_mut().filter(|function| is_open(function)) {
            function.evict = Some(*evict);
        }
        Some(Candidate { plan, what: (*what).into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn profile() -> ProfileFile {
        let waits = |ns: u64| json!({"faults": 10, "fetches": 8, "first_touches": 1, "wait_ns": ns});
        let with = |mut value: serde_json::Value, ns: u64| {
            value.as_object_mut().unwrap().extend(waits(ns).as_object().unwrap().clone());
            value
        };
        let function = |at: u64| {
            let module = if at == 3 { "libc.so.6" } else { "app" };
            let value =
                json!({"name": format!("f{at}"), "module": module, "wait_share": 0.1, "lines": [], "sites": []});
            with(value, 1000 - at)
        };
        let file = json!({
            "format": "hinterland profile", "version": 1,
            "program": {"name": "./app", "path": "/work/app", "build_id": ""},
            "run": with(json!({"wall_ns": 5u64, "lost": {"faults": 0, "stacks": 0, "allocations": 0, "unplaced": 0}}), 900),
            "modules": [], "functions": (0..10).map(function).collect::<Vec<_>>(), "sites": [], "frames": [], "stacks": [],
        });
        ProfileFile::of(file.to_string().as_bytes()).unwrap()
    }

    fn names(plan: &Plan) -> Vec<&str> {
        plan.functions.iter().map(|function| function.name.as_str()).collect()
    }

    #[test]
    fn each_round_adds_what_waits_longest_of_the_rest_and_what_was_rolled_back_stays_out() {
        let (profile, none) = (profile(), Plan { version: 1, ..Plan::default() });
        let mut widening = Widening::new(0.1, 0.1, 0.2, 2);
        let is_compiled = |module: &str| module == "app";
        let first = widening.next(&none, &profile, &is_compiled).unwrap();
        assert_eq!((names(&first.plan), first.what.as_str()), (vec!["f0"], "worst 10 %, largest 10 %"));
        // Kept. The next one is not.
        let second = widening.next(&first.plan, &profile, &is_compiled).unwrap();
        assert_eq!((names(&second.plan), second.what.as_str()), (vec!["f0", "f1", "f2"], "worst 30 %, largest 30 %"));
        let third = widening.next(&first.plan, &profile, &is_compiled).unwrap();
        assert_eq!(names(&third.plan), ["f0", "f4"], "and nothing of libc's");
        let rest = std::iter::from_fn(|| widening.next(&third.plan, &profile, &is_compiled)).collect::<Vec<_>>();
        let all: Vec<_> = rest.iter().map(|one| names(&one.plan)).collect();
        assert_eq!(all[..3], [vec!["f0", "f4", "f5", "f6"], vec!["f0", "f4", "f7", "f8"], vec!["f0", "f4", "f9"]]);
        assert_eq!(all.len(), 5, "and then eviction");
        let evict = |at: usize, word| rest[at].plan.functions.iter().all(|function| function.evict == Some(word));
        assert!(evict(3, Eviction::Never) && evict(4, Eviction::Soon));
    }

    #[test]
    fn without_functions_there_is_nothing_to_try() {
        let none = Plan { version: 1, ..Plan::default() };
        assert_eq!(Widening::new(1.0, 1.0, 0.1, 2).next(&none, &profile(), &|_| false), None);
    }
}
