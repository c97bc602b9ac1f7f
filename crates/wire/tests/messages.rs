//! Everything that is encoded is decoded as it was; nothing that arrives makes the decoder panic or read beyond a bound.

use hinterland_testkit::Rng;
use hinterland_testkit::messages::{any_message, described, sealed_again};
use hinterland_wire::*;

const SEEDS: u64 = 20_000;

#[test]
fn what_is_encoded_is_decoded_as_it_was() {
    for seed in 0..SEEDS {
        let (message, expected) = any_message(&mut Rng(seed));
        let (header, control) = Header::decode_whole(&message).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(header.number, seed, "seed {seed}");
        assert_eq!(described(&header, control), Ok(expected), "seed {seed}");
    }
}

#[test]
fn no_damage_of_header_and_control_part_goes_unseen() {
    for seed in 0..SEEDS {
        let rng = &mut Rng(seed);
        let (mut message, _) = any_message(rng);
        let bit = rng.below(message.len() as u64 * 8);
        message[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8);
        assert!(Header::decode_whole(&message).is_err(), "seed {seed}: bit {bit} flipped");
        let (message, _) = any_message(rng);
        let cut = rng.index(message.len());
        assert!(Header::decode_whole(&message[..cut]).is_err(), "seed {seed}: cut to {cut}");
    }
}

/// A hostile sender computes its checksums: what it says is decoded or refused, and every view stays within its bounds.
#[test]
fn hostile_messages_with_right_checksums_are_harmless() {
    let mut accepted = 0u64;
    for seed in 0..SEEDS * 5 {
        let rng = &mut Rng(seed);
        let (mut message, _) = any_message(rng);
        for _ in 0..1 + rng.below(4) {
            match rng.below(4) {
                0 => {
                    let at = rng.index(message.len());
                    message[at] = u8::try_from(rng.below(256)).unwrap();
                }
                1 => message.truncate(HEADER_BYTES.max(rng.index(message.len()))),
                2 => message.extend((0..rng.below(64)).map(|byte| u8::try_from(byte).unwrap())),
                _ => {
                    let at = rng.index(message.len().saturating_sub(8).max(1));
                    let extreme = [u64::MAX, 0, 1 << 31, 1 << 63][rng.index(4)].to_le_bytes();
                    let end = (at + 8).min(message.len());
                    message[at..end].copy_from_slice(&extreme[..end - at]);
                }
            }
        }
        sealed_again(&mut message);
        if let Ok((header, control)) = Header::decode_whole(&message) {
            assert!(header.control_bytes <= CONTROL_BYTES_MAX && header.data_bytes <= DATA_BYTES_MAX);
            accepted += u64::from(described(&header, control).is_ok());
        }
    }
    assert!(accepted > SEEDS / 10, "only {accepted} messages got past the header: the test tests nothing");
}

#[test]
fn random_bytes_are_refused() {
    for seed in 0..SEEDS {
        let rng = &mut Rng(seed);
        let bytes: Vec<u8> = (0..rng.index(200)).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        assert!(Header::decode_whole(&bytes).is_err(), "seed {seed}");
        if let Some(bytes) = bytes.first_chunk() {
            assert!(Hello::decode(bytes).is_err(), "seed {seed}");
        }
        if let Some(bytes) = bytes.first_chunk() {
            assert!(Welcome::decode(bytes).is_err(), "seed {seed}");
        }
    }
}

#[test]
fn lengths_above_their_bounds_are_named() {
    let mut message = Vec::new();
    Request::plain(&mut message, 7, Kind::Clone);
    for (at, what) in [(4, "the control part"), (8, "the data part")] {
        let mut message = message.clone();
        message[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = Header::decode(message.first_chunk().unwrap()).unwrap_err();
        assert!(matches!(error, WireError::TooLong { what: named, .. } if named == what), "{error}");
    }
}

#[test]
fn both_sides_agree_on_the_newest_version_that_they_share() {
    let node = Hello { versions: (3, 7), features: Features::ALL };
    for (versions, agreed) in [((1, 2), None), ((1, 3), Some(3)), ((5, 6), Some(6)), ((7, 9), Some(7)), ((8, 9), None)]
    {
        assert_eq!(node.agree(versions), agreed, "{versions:?}");
    }
    let stranger = Hello { versions: (VERSION + 1, VERSION + 4), features: Features(u64::MAX) };
    let answer = Welcome::answer(&Hello::decode(&stranger.encode()).unwrap(), Features::ALL, 1 << 21, false);
    assert_eq!((answer.outcome, answer.versions), (Outcome::Version, (VERSION, VERSION)));
    let answer =
        Welcome::answer(&Hello { features: Features(u64::MAX), ..Hello::ours() }, Features::ALL, 1 << 21, false);
    assert_eq!((answer.outcome, answer.features), (Outcome::Accepted, Features::ALL));
    assert_eq!(Welcome::decode(&answer.encode()), Ok(answer));
    let fewer = Welcome::answer(&Hello::ours(), Features::ALL.without(Features::SHARED), 1 << 21, false);
    assert!(!fewer.features.has(Features::SHARED) && fewer.features.has(Features::CLONE));
}

#[test]
fn the_right_bytes_of_another_place_have_another_checksum() {
    assert_ne!(checksum(0, &[7; 4096]), checksum(4096, &[7; 4096]));
    assert_eq!(checksum(8192, &[7; 4096]), checksum(8192, &[7; 4096]));
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let mut message = Vec::new();
    Reply::refused(&mut message, 1, Refusal::Full, (1, 2), &"ä".repeat(500));
    let (header, control) = Header::decode_whole(&message).unwrap();
    let Ok(Reply::Refused { words, .. }) = Reply::decode(&header, control) else { panic!("a refusal") };
    assert_eq!(words, "ä".repeat((WORDS_BYTES_MAX - "…".len()) / 2) + "…");
}
