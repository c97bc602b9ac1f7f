//! The cluster: dispatching worked out by hand, and what holds for any run.

use hinterland_model::cluster::{
    Assignment, Demands, Fleet, Limits, Machine, Mix, Programs, Run, Start, dispatch, simulate,
};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

fn backend(name: &str) -> Value {
    json!({"name": name, "bytes_per_second": 1e9, "capacity_gib": 100, "local_bytes_per_byte": 0.0})
}

/// With one member that is another.
fn backend_with(name: &str, member: &str, value: impl Into<Value>) -> Value {
    let mut backend = backend(name);
    backend[member] = value.into();
    backend
}

fn point(backend: &str, local_percent: f64, slowdown: f64) -> Value {
    json!({"backend": backend, "local_percent": local_percent, "slowdown": slowdown, "far_bytes_per_second": 1e6})
}

fn program(name: &str, gib: u64, points: &[Value]) -> Value {
    json!({"name": name, "touched_bytes": gib * GIB, "cpu_seconds": 100.0, "points": points})
}

fn parsed(backends: &[Value], programs: &[Value]) -> Result<Programs, String> {
    Programs::parse(&json!({"version": 1, "backends": backends, "programs": programs}).to_string())
}

/// One program that is friendly with `near`, and one that is not with anything.
fn two() -> Programs {
    let friendly =
        program("friendly", 8, &[point("near", 50.0, 1.1), point("near", 25.0, 1.4), point("slow", 50.0, 1.3)]);
    let other = program("other", 8, &[point("slow", 75.0, 1.4)]);
    parsed(&[backend("near"), backend("slow")], &[friendly, other]).expect("good")
}

const NEAR: Option<usize> = Some(0);
const SLOW: Option<usize> = Some(1);
const MACHINE: Machine = Machine { cores: 4, memory_mib: 16 << 10 };
const LIMITS: Limits = Limits { far_mib: 100 << 10, bytes_per_second: 1_000_000_000 };

fn demands(programs: &Programs, slowdown: Option<f64>, scale: f64) -> Demands {
    Demands::new(programs, slowdown, scale, &MACHINE, &[LIMITS; 2])
}

#[test]
fn demands_are_those_that_take_least_of_a_machine_within_the_slowdown() {
    let programs = two();
    assert_eq!(programs.programs.iter().map(|program| program.is_friendly()).collect::<Vec<_>>(), [true, false]);
    let at_12 = demands(&programs, Some(1.2), 1.0);
    let near = at_12.of(0, NEAR).expect("it keeps it");
    assert_eq!((near.local_mib, near.far_mib, near.run_ms), (4 << 10, 4 << 10, 110_000));
    // A quarter of the memory, and of the four processors.
    assert!((near.machine_seconds - 0.25 * 110.0).abs() < 1e-9);
    assert_eq!(at_12.of(0, SLOW), None, "it does not keep it");
    let local = at_12.of(0, None).expect("always");
    assert_eq!((local.local_mib, local.far_mib, local.run_ms), (8 << 10, 0, 100_000));
    assert!((local.machine_seconds - 0.5 * 100.0).abs() < 1e-9);
    assert_eq!(at_12.preferred(0), [NEAR, None]);
    // With a processor of four, less memory and more time are not worth it: 0.25 × 140 beside 0.25 × 110, and 0.25 × 130.
    let at_14 = demands(&programs, Some(1.4), 1.0);
    assert_eq!((at_14.of(0, NEAR), at_14.preferred(0)), (at_12.of(0, NEAR), &[NEAR, SLOW, None][..]));
    let twice = demands(&programs, Some(1.2), 2.0);
    let near = twice.of(0, NEAR).expect("it keeps it");
    assert_eq!((near.local_mib, near.run_ms), (8 << 10, 220_000));
    assert_eq!(demands(&programs, None, 1.0).preferred(0), [None]);
    // A path that carries little is a share of the machine, too.
    let narrow = Limits { bytes_per_second: 1_250_000, ..LIMITS };
    let narrow = Demands::new(&programs, Some(1.4), 1.0, &MACHINE, &[narrow, LIMITS]);
    assert_eq!(narrow.preferred(0), [SLOW, None, NEAR]);
}

fn place(machine: u32, backend: Option<usize>, start: Start) -> Option<Assignment> {
    Some(Assignment { machine, backend, start })
}

/// Algorithm 1, step by step.
#[test]
fn warm_machines_come_before_free_ones_before_switched_ones_before_new_ones() {
    let programs = two();
    let demands = demands(&programs, Some(1.4), 1.0);
    let demand = |program, backend| *demands.of(program, backend).expect("it keeps it");
    let mut fleet = Fleet::new(3, MACHINE, vec![LIMITS; 2]);
    let near = demand(0, NEAR);
    assert_eq!(dispatch(&fleet, &demands, 0), place(0, NEAR, Start::New));
    fleet.start(0, NEAR, &near);
    assert_eq!(dispatch(&fleet, &demands, 0), place(0, NEAR, Start::Warm));
    fleet.end(0, &near);
    assert_eq!(dispatch(&fleet, &demands, 0), place(0, NEAR, Start::Free));
    // A machine that ran with another backend is switched; one whose programs had all of their memory local, too.
    for backend in [SLOW, None] {
        let mut fleet = Fleet::new(3, MACHINE, vec![LIMITS; 2]);
        let other = demand(0, backend);
        fleet.start(0, backend, &other);
        fleet.end(0, &other);
        assert_eq!(dispatch(&fleet, &demands, 0), place(0, NEAR, Start::Switched));
    }
    // Four of 4 GiB each fill a machine; of two that have room, the fuller one is taken.
    (0..4).for_each(|_| fleet.start(0, NEAR, &near));
    fleet.start(1, NEAR, &near);
    fleet.start(2, NEAR, &near);
    fleet.start(2, NEAR, &near);
    assert_eq!(dispatch(&fleet, &demands, 0), place(2, NEAR, Start::Warm));
    (0..3).for_each(|_| fleet.start(1, NEAR, &near));
    (0..2).for_each(|_| fleet.start(2, NEAR, &near));
    assert_eq!(dispatch(&fleet, &demands, 0), None);
}

/// The path is full, the memory is not: with all of its memory local a program runs beside others, on whatever machine.
#[test]
fn a_program_does_not_wait_for_far_memory_while_there_is_local_memory() {
    let programs = two();
    let demands = demands(&programs, Some(1.2), 1.0);
    let full = Limits { far_mib: 4 << 10, ..LIMITS };
    let mut fleet = Fleet::new(1, MACHINE, vec![full; 2]);
    for expected in [place(0, NEAR, Start::New), place(0, None, Start::Warm)] {
        let found = dispatch(&fleet, &demands, 0);
        assert_eq!(found, expected);
        let Assignment { machine, backend, .. } = found.expect("there is room");
        fleet.start(machine, backend, demands.of(0, backend).expect("it keeps it"));
    }
    assert_eq!(dispatch(&fleet, &demands, 0), None, "4 GiB are left");
}

#[test]
fn far_memory_and_bandwidth_bound_what_a_machine_takes() {
    let programs = two();
    let demands = demands(&programs, Some(1.2), 1.0);
    let takes = |limits: Limits| {
        let mut fleet = Fleet::new(1, MACHINE, vec![limits; 2]);
        let mut count = 0;
        while let Some(Assignment { machine, backend: NEAR, .. }) = dispatch(&fleet, &demands, 0) {
            fleet.start(machine, NEAR, demands.of(0, NEAR).expect("it keeps it"));
            count += 1;
        }
        count
    };
    assert_eq!(takes(LIMITS), 4);
    assert_eq!(takes(Limits { far_mib: 8 << 10, ..LIMITS }), 2);
    assert_eq!(takes(Limits { bytes_per_second: 3_000_000, ..LIMITS }), 3);
}

fn run(slowdown: Option<f64>, friendly_percent: u32, seed: u64) -> Run {
    Run {
        machines: 10,
        machine: MACHINE,
        mix: Mix { friendly_percent, per_second: 10.0, seed },
        slowdown,
        scale: 1.0,
        switch_ms: 5_000,
        new_ms: 60_000,
        warm_up_ms: 1_000_000,
        measured_ms: 10_000_000,
    }
}

/// Without far memory two of 8 GiB fit into 16; at 1.2 four of 4 GiB do, which take 1.1 times as long.
#[test]
fn throughput_is_what_fits_by_how_long_it_takes() {
    let programs = two();
    let ended = |slowdown, friendly| simulate(&programs, &run(slowdown, friendly, 1)).expect("it runs").ended;
    let without = ended(None, 100);
    assert!(without.abs_diff(10 * 2 * 100) <= 20, "{without}");
    let with = ended(Some(1.2), 100);
    assert!(with.abs_diff(10 * 4 * 10_000 / 110) <= 40, "{with}");
    assert_eq!(ended(Some(1.2), 0), ended(None, 0), "far memory brings the other one nothing");
}

/// Four programs arrive within a second for one new machine, which is there after a minute: they end when they have run from then on.
#[test]
fn a_program_begins_when_its_machine_is_ready() {
    let programs = two();
    let ended = |slowdown, new_ms, until_ms| {
        let run = Run { machines: 1, new_ms, warm_up_ms: 0, measured_ms: until_ms, ..run(slowdown, 100, 1) };
        simulate(&programs, &run).expect("it runs").ended
    };
    assert_eq!((ended(Some(1.2), 60_000, 169_000), ended(Some(1.2), 60_000, 172_000)), (0, 4));
    assert_eq!((ended(None, 60_000, 159_000), ended(None, 60_000, 162_000)), (0, 2));
    assert_eq!((ended(None, 0, 99_000), ended(None, 0, 102_000)), (0, 2));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let programs = two();
    let of = |seed| {
        let run = Run { warm_up_ms: 100_000, ..run(Some(1.4), 50, seed) };
        simulate(&programs, &run).expect("both kinds are there")
    };
    assert_eq!(of(3), of(3));
    assert!(of(3).ended > 0 && of(3) != of(4));
}

#[test]
fn what_cannot_be_is_refused() {
    let near = [backend("near")];
    let good = program("a", 1, &[point("near", 50.0, 1.1)]);
    assert!(parsed(&near, std::slice::from_ref(&good)).is_ok());
    for (backends, programs, why) in [
        (&[][..], vec![good.clone()], "no backend"),
        (&near, vec![], "no program"),
        (&[backend_with("near", "bytes_per_second", 0.5)], vec![good.clone()], "'near': its path carries a byte"),
        (&[backend_with("near", "local_bytes_per_byte", 1.0)], vec![good.clone()], "'near': its path carries a byte"),
        (&[backend_with("near", "capacity_gib", 0)], vec![good.clone()], "'near': its capacity is 1 to"),
        (&[backend_with("near", "capacity_gib", 1_u64 << 60)], vec![good.clone()], "'near': its capacity is 1 to"),
        (&[backend("near"), backend("near")], vec![good.clone()], "'near': it comes twice"),
        (&near, vec![program("a", 0, &[])], "'a': no memory"),
        (&near, vec![program("a", 1, &[point("far", 50.0, 1.1)])], "no backend 'far'"),
        (&near, vec![program("a", 1, &[point("near", 101.0, 1.1)])], "cannot be"),
    ] {
        let refused = parsed(backends, &programs).expect_err(why);
        assert!(refused.contains(why), "{refused}");
    }
    let too_large = parsed(&near, &[program("a", 17, &[])]).expect("good");
    assert!(simulate(&too_large, &run(None, 0, 1)).expect_err("too large").contains("'a'"));
    assert!(simulate(&too_large, &run(None, 50, 1)).is_err());
    assert!(two().with_backends(&["far".into()]).expect_err("unknown").contains("near, slow"));
}
