//! What is tried next: more of the functions that wait longest and of the largest allocations (Mira §4.1); then, whether pages that are
//! walked may leave before others, those of allocations that are walked in steps and those of all that the functions walk.

use crate::plan::{Eviction, Function, Plan, Site};
use crate::profile::{ProfileFile, choose, lies_at};

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
    /// Functions that were tried: what was rolled back is not tried again.
    tried: Vec<Function>,
    /// A word on the eviction of allocations was tried.
    has_tried_sites: bool,
    /// Words on eviction that were tried.
    evictions: usize,
}

/// What is tried where the plan leaves eviction to what the compiler proves of each function alone: pages may be walked again by
/// others, or not.
const EVICTIONS: [(Eviction, &str); 2] = [(Eviction::Never, "evict = \"never\""), (Eviction::Soon, "evict = \"soon\"")];

impl Widening {
    pub fn new(worst: f64, largest: f64, step: f64, depth: usize) -> Widening {
        Widening { worst, largest, step, depth, tried: Vec::new(), has_tried_sites: false, evictions: 0 }
    }

    /// The next plan, from the best one so far and a profile of the program that was built with it; only functions in files that
    /// `is_compiled` names. `None`: all was tried.
    pub fn next(
        &mut self,
        best: &Plan,
        profile: &ProfileFile,
        is_compiled: &dyn Fn(&str) -> bool,
    ) -> Option<Candidate> {
        let wider = self.wider(best, profile, is_compiled);
        wider.or_else(|| self.evicting_sites(best, profile)).or_else(|| self.evicting(best))
    }

    fn wider(&mut self, best: &Plan, profile: &ProfileFile, is_compiled: &dyn Fn(&str) -> bool) -> Option<Candidate> {
        while self.worst <= 1.0 || self.largest <= 1.0 {
            let (worst, largest) = (self.worst.min(1.0), self.largest.min(1.0));
            let chosen = choose(profile, worst, largest, self.depth);
            // All of it was looked at once both are whole.
            let next = |part: f64| if part < 1.0 { (part + self.step).min(1.0) } else { 2.0 };
            (self.worst, self.largest) = (next(self.worst), next(self.largest));
            let is_new = |function: &Function| {
                !best.functions.iter().chain(&self.tried).any(|there| names_the_same(there, function))
            };
            let functions = chosen.functions.into_iter();
            let functions: Vec<Function> =
                functions.filter(|function| is_compiled(&function.module) && is_new(function)).collect();
            if functions.is_empty() {
                continue;
            }
            self.tried.extend_from_slice(&functions);
            let what = format!("worst {:.0} %, largest {:.0} %", worst * 100.0, largest * 100.0);
            let sites = new_sites(best, chosen.sites);
            let mut plan = Plan { program: chosen.program, build_id: chosen.build_id, measured: None, ..best.clone() };
            plan.functions.extend(functions);
            plan.sites.extend(sites);
            return Some(Candidate { plan, what });
        }
        None
    }

    /// Whether pages of allocations that are walked in steps leave before others, once the functions of the plan have walked them.
    fn evicting_sites(&mut self, best: &Plan, profile: &ProfileFile) -> Option<Candidate> {
        if std::mem::replace(&mut self.has_tried_sites, true) || !best.functions.iter().any(|function| function.fetch) {
            return None;
        }
        let mut plan = Plan { measured: None, ..best.clone() };
        plan.sites.extend(new_sites(best, choose(profile, 1.0, 1.0, self.depth).sites));
        let is_open = |site: &Site| site.evict.is_none() && ["sequential", "strided"].contains(&site.pattern.as_str());
        let mut open = plan.sites.iter_mut().filter(|site| is_open(site)).peekable();
        open.peek()?;
        open.for_each(|site| site.evict = Some(Eviction::Soon));
        Some(Candidate { plan, what: "sites: evict = \"soon\"".into() })
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

/// Whether a plan with the first names the second, too, or the other way round: one that has a file is named without it as long as no other of its name
/// has waited.
fn names_the_same(one: &Function, other: &Function) -> bool {
    let [a, b] = [one, other].map(|function| function.file.as_str());
    let has_same_file = a.is_empty() || b.is_empty() || lies_at(a, b) || lies_at(b, a);
    (&one.module, &one.name) == (&other.module, &other.name) && has_same_file
}

/// Those that the plan does not have. Column 0 is any.
fn new_sites(plan: &Plan, sites: Vec<Site>) -> Vec<Site> {
    let is_there = |site: &Site, there: &Site| {
        let has_same_column = site.column == 0 || there.column == 0 || site.column == there.column;
        (&site.function, site.line) == (&there.function, there.line) && has_same_column
    };
    sites.into_iter().filter(|site| !plan.sites.iter().any(|there| is_there(site, there))).collect()
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
    fn what_was_tried_under_its_name_alone_is_not_tried_again_by_its_file() {
        let (mut profile, none) = (profile(), Plan { version: 1, ..Plan::default() });
        let mut widening = Widening::new(0.1, 1.0, 0.9, 2);
        let best = widening.next(&none, &profile, &|_| true).unwrap().plan;
        assert_eq!((names(&best), best.functions[0].file.as_str()), (vec!["f0"], ""));
        // Others of that name wait.
        for file in ["/src/a.c", "/src/b.c"] {
            let mut named = profile.functions[0].clone();
            named.file = Some(file.into());
            profile.functions.push(named);
        }
        let more = widening.next(&none, &profile, &|_| true).unwrap().plan;
        assert!(more.functions.len() == 9 && !names(&more).contains(&"f0"), "it was rolled back: {more:?}");
        let all = |best: &Plan| Widening::new(1.0, 1.0, 1.0, 2).next(best, &profile, &|_| true).unwrap().plan;
        assert_eq!(all(&best).functions.len(), 10, "it is there");
        // By its file it names no other.
        let named = Plan { functions: vec![Function { file: "a.c".into(), ..best.functions[0].clone() }], ..best };
        let files =
            |plan: &Plan| plan.functions.iter().map(|function| function.file.clone()).collect::<Vec<_>>().concat();
        assert_eq!(files(&all(&named)), "a.cb.c");
    }

    #[test]
    fn a_site_without_a_column_is_there_for_any() {
        let site = |line: u32, column: u32| Site { function: "make".into(), line, column, ..Site::default() };
        let there = Plan { sites: vec![site(3, 0), site(4, 7)], ..Plan::default() };
        let sites = vec![site(3, 5), site(4, 0), site(4, 7), site(4, 8), site(5, 0)];
        assert_eq!(new_sites(&there, sites), [site(4, 8), site(5, 0)]);
    }

    #[test]
    fn of_allocations_that_are_walked_in_steps_it_is_tried_whether_they_leave_early() {
        let mut profile = profile();
        let site = |line: u32, pattern: &str| {
            let value = json!({
                "calls": [{"function": "make", "module": "app", "line": line}], "kind": "heap", "allocations": 1, "bytes": 9, "bytes_max": 9,
                "held_bytes_max": 9, "faults": 1, "fetches": 1, "first_touches": 0, "wait_ns": 9, "wait_share": 0.1, "pattern": pattern,
                "sequential": 1, "strided": 0, "irregular": 0, "fetched_pages": 1,
                "functions": [{"index": 0, "faults": 1, "fetches": 1, "first_touches": 0, "wait_ns": 9}],
            });
            serde_json::from_value(value).unwrap()
        };
        profile.sites = vec![site(3, "sequential"), site(4, "random"), site(5, "strided")];
        let none = Plan { version: 1, ..Plan::default() };
        let mut widening = Widening::new(1.0, 1.0, 1.0, 2);
        let all = widening.next(&none, &profile, &|module| module == "app").unwrap().plan;
        assert!(all.sites.len() == 3 && all.sites.iter().all(|site| site.evict.is_none()));
        let next = widening.next(&all, &profile, &|_| false).unwrap();
        let said: Vec<_> = next.plan.sites.iter().map(|site| (site.line, site.evict)).collect();
        assert_eq!(said, [(3, Some(Eviction::Soon)), (4, None), (5, Some(Eviction::Soon))]);
        assert_eq!(next.what, "sites: evict = \"soon\"");
        assert_eq!(widening.next(&all, &profile, &|_| false).unwrap().what, "evict = \"never\"");
        // Without a function whose loops are hinted nothing is evicted.
        let mut widening = Widening::new(1.0, 1.0, 1.0, 2);
        assert_eq!(widening.next(&none, &profile, &|_| false), None);
    }

    #[test]
    fn without_functions_there_is_nothing_to_try() {
        let none = Plan { version: 1, ..Plan::default() };
        assert_eq!(Widening::new(1.0, 1.0, 0.1, 2).next(&none, &profile(), &|_| false), None);
    }
}
