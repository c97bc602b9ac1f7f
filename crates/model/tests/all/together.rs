//! Several cores, several programs, links that differ, and traffic of others.

use super::properties::random_stream;
use super::{load, plain, run, stream};
use hinterland_model::{
    Disturbance, Link, Miss, ModelStats, Parameters, Rate, Running, Scheme, Stream, ns, replay_together,
};

/// The stream on two cores, which have every tenth miss in turns.
fn on_two_cores(mut stream: Stream) -> Stream {
    for (number, miss) in stream.misses.iter_mut().enumerate() {
        miss.core = u8::from(number / 10 % 2 == 1);
    }
    Stream { cores: 2, ..stream }
}

/// With pages that compress to a quarter.
fn together(streams: &[&Stream], scheme: Scheme, parameters: &Parameters) -> Vec<ModelStats> {
    let compressed: Vec<Vec<u16>> = streams.iter().map(|stream| vec![1024; stream.pages as usize]).collect();
    let running: Vec<Running> = streams
        .iter()
        .zip(&compressed)
        .map(|(stream, compressed_bytes)| Running { stream, compressed_bytes })
        .collect();
    replay_together(&running, scheme, parameters)
}

#[test]
fn on_several_cores_every_access_is_served_once_on_every_scheme() {
    let tiny =
        Parameters { inflight_pages: 3, inflight_sub_blocks: 2, dirty_lines: 4, llc_mshrs: 4, ..Parameters::paper() };
    for seed in 0..8 {
        let stream = on_two_cores(random_stream(seed));
        for parameters in [Parameters::paper(), tiny.clone()] {
            for scheme in Scheme::ALL {
                let figures = run(&stream, scheme, &parameters);
                let counts = figures.counts;
                assert_eq!(counts.accesses, stream.misses.len() as u64, "{scheme:?}");
                assert_eq!(
                    counts.local + counts.awaited + counts.by_page + counts.by_line,
                    counts.accesses,
                    "{scheme:?}"
                );
                assert_eq!(figures, run(&stream, scheme, &parameters), "{scheme:?}");
            }
        }
    }
}

#[test]
fn two_cores_wait_at_the_same_time() {
    // Each miss depends on the one before: one core waits for one at a time.
    let chain =
        |number: u32, back: u32| Miss { after: number.saturating_sub(back), instructions: 100, ..load(number * 64) };
    let one = stream((0..400).map(|number| chain(number, 0)).collect());
    let mut two = stream((0..400).map(|number| chain(number, 1)).collect());
    for (number, miss) in (0u32..).zip(&mut two.misses) {
        (miss.core, miss.after) = (u8::from(number % 2 == 1), number.saturating_sub(1));
    }
    let two = Stream { cores: 2, ..two };
    let [one, two] = [one, two].map(|stream| run(&stream, Scheme::CacheLine, &Parameters::paper()).ticks);
    assert!(two * 19 < one * 10 && two * 21 > one * 10, "{one} on one core, {two} on two");
}

#[test]
fn programs_that_run_at_once_are_slower_than_alone_and_alike_are_equally_fast() {
    let program = random_stream(1);
    let paper = Parameters::paper();
    for scheme in Scheme::ALL {
        let alone = together(&[&program], scheme, &paper);
        assert_eq!(alone, [run(&program, scheme, &paper)], "{scheme:?}");
        let both = together(&[&program, &program], scheme, &paper);
        assert!(both.iter().all(|figures| figures.ticks >= alone[0].ticks), "{scheme:?}");
        let (faster, slower) = (both[0].ticks.min(both[1].ticks), both[0].ticks.max(both[1].ticks));
        assert!(slower * 10 < faster * 11, "{scheme:?}: {faster} and {slower}");
        assert!(both[0].counts.accesses >= 2 * program.misses.len() as u64, "{scheme:?}");
    }
    // Beside a short program it is as much disturbed as beside one as long: that begins again.
    let short =
        stream(program.misses[..1000].iter().map(|miss| Miss { dirty_victim: super::CLEAN, ..*miss }).collect());
    let long = together(&[&program, &short], Scheme::Remote, &paper);
    assert!(long[0].ticks > 2 * long[1].ticks && long[0].counts.accesses > 3000 + 2000, "{long:?}");
}

#[test]
fn each_memory_component_has_the_link_that_it_was_given() {
    let slow = Link { rate: Rate(18_000_000_000), switch_ticks: 2000 };
    let fast = Link { rate: plain().network_rate, switch_ticks: plain().switch_ticks };
    let parameters = Parameters { components: 2, links: vec![fast, slow], ..plain() };
    let ticks = |page: u32| run(&stream(vec![load(page * 64)]), Scheme::CacheLine, &parameters).ticks;
    let memory = 10 + 64 + 100;
    assert_eq!((ticks(0), ticks(1)), (2 * 80 + 1000 + memory, 4 * 80 + 2000 + memory));
}

#[test]
fn traffic_of_others_makes_what_uses_the_network_slower_and_nothing_else() {
    let disturbed = |percent, seed| {
        let disturbance = Some(Disturbance { percent, interval_ticks: ns(20_000), seed });
        Parameters { disturbance, ..Parameters::paper() }
    };
    let stream = random_stream(2);
    for scheme in Scheme::ALL {
        let ticks = |parameters: &Parameters| run(&stream, scheme, parameters).ticks;
        let (quiet, half, most) = (ticks(&Parameters::paper()), ticks(&disturbed(50, 1)), ticks(&disturbed(80, 1)));
        if scheme == Scheme::Local {
            assert_eq!((quiet, quiet), (half, most));
        } else {
            assert!(quiet < half && half < most, "{scheme:?}: {quiet}, {half}, {most}");
            assert_eq!(half, ticks(&disturbed(50, 1)), "{scheme:?}");
            assert_ne!(half, ticks(&disturbed(50, 2)), "{scheme:?}");
        }
    }
}
