//! The validity of certificates, and warnings about those that have expired or soon will.
//!
//! An expired certificate of its own keeps no node or run from starting: its peers refuse it with a message, and a renewed
//! one is loaded as soon as it is in place. So a warning is logged at the start, and when the certificate expires.
//!
//! Source: RFC 5280 §4.1.2.5 (the last second counts). A CA's own dates are not looked at by rustls when it checks what the CA has signed
//! (RFC 5280 §6.1.1 leaves that open), but by others.

use rustls::pki_types::CertificateDer;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates that are good for less are warned of.
const SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The last second of the year 9999, which also stands for "without end".
const LAST: i64 = 253_402_300_799;

/// Certificates in use, by the files that they are from.
#[derive(Default)]
pub(crate) struct Shown(Vec<(bool, PathBuf, CertificateDer<'static>)>);

impl Shown {
    pub(crate) fn add(&mut self, is_ca: bool, path: &Path, certificates: &[CertificateDer<'static>]) {
        self.0.extend(certificates.iter().map(|certificate| (is_ca, path.to_owned(), certificate.clone())));
    }

    /// What they say of themselves. One that rustls can use and the reader of dates cannot is left out.
    pub(crate) fn certificates(&self) -> Vec<Certificate> {
        let read = |(is_ca, path, der): &(bool, PathBuf, CertificateDer<'static>)| {
            let (_, parsed) = X509Certificate::from_der(der).ok()?;
            let (from, until) = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
            Some(Certificate { is_ca: *is_ca, path: path.clone(), subject: parsed.subject().to_string(), from, until })
        };
        self.0.iter().filter_map(read).collect()
    }
}

/// One of our own certificates, or one of a CA that we were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Of a CA for the other side.
    pub is_ca: bool,
    /// Where it is from.
    pub path: PathBuf,
    /// For whom it is, as it says itself: "CN=node-1".
    pub subject: String,
    /// Its first second, since 1970.
    pub from: i64,
    /// Its last second, since 1970.
    pub until: i64,
}

/// What the calendar says of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValidityState {
    /// It is good for long enough.
    Good,
    /// It is good for less than a week.
    Soon,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    Early,
}

/// Whose certificate it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// A memory node's.
    Node,
    /// A program's.
    Program,
}

fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// "2026-11-26T10:00:00Z".
fn date(second: i64) -> impl fmt::Display {
    let second = u64::try_from(second.clamp(0, LAST)).unwrap_or(0);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(second))
}

impl Certificate {
    /// For how many seconds it is still good; negative: it has expired.
    pub fn left_seconds(&self, now: SystemTime) -> i64 {
        self.until.saturating_sub(seconds(now))
    }

    /// Its last second, for people.
    pub fn expires(&self) -> String {
        date(self.until).to_string()
    }

    /// See `ValidityState`.
    pub fn state(&self, now: SystemTime) -> ValidityState {
        let soon = i64::try_from(SOON.as_secs()).unwrap_or(i64::MAX);
        match self.left_seconds(now) {
            _ if seconds(now) < self.from => ValidityState::Early,
            left if left < 0 => ValidityState::Expired,
            left if left < soon => ValidityState::Soon,
            _ => ValidityState::Good,
        }
    }

    /// What is wrong, where, and what to do; `None`: nothing is.
    pub fn warning(&self, now: SystemTime, side: Side) -> Option<String> {
        let (path, subject) = (self.path.display(), &self.subject);
        let others = match side {
            Side::Node => "programs",
            Side::Program => "memory nodes",
        };
        let which = if self.is_ca { "the certificate of the CA" } else { "our own certificate" };
        let renew = "put a renewed one there, which is read without a restart";
        let refused = match self.is_ca {
            true => format!("what it has signed is still accepted here, but not by all software; {renew}"),
            false => format!("{others} refuse it; {renew}"),
        };
        let what = match self.state(now) {
            ValidityState::Good => return None,
            ValidityState::Soon => format!("expires in less than seven days, {}; {renew}", self.expires()),
            ValidityState::Expired => format!("has expired, {}: {refused}", self.expires()),
            ValidityState::Early if self.is_ca => {
                format!("is not valid before {}; look at this machine's clock", date(self.from))
            }
            ValidityState::Early => {
                format!("is not valid before {}: {others} refuse it; look at this machine's clock", date(self.from))
            }
        };
        Some(format!("{path}: {which} ({subject}) {what}"))
    }
}

/// Says what is wrong with certificates, and each thing once.
#[derive(Default)]
pub struct Calendar {
    said: Vec<String>,
}

impl Calendar {
    /// What is to be said now.
    pub fn news(&mut self, certificates: &[Certificate], now: SystemTime, side: Side) -> Vec<String> {
        let warnings: Vec<String> =
            certificates.iter().filter_map(|certificate| certificate.warning(now, side)).collect();
        let news = warnings.iter().filter(|warning| !self.said.contains(warning)).cloned().collect();
        self.said = warnings;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60;

    fn at(second: i64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second.unsigned_abs())
    }

    fn certificate(is_ca: bool) -> Certificate {
        let (path, subject) = (PathBuf::from("/etc/node.pem"), "CN=node-1".to_owned());
        Certificate { is_ca, path, subject, from: 100 * DAY, until: 200 * DAY }
    }

    #[test]
    fn the_last_second_counts_and_a_week_before_the_end_it_is_said() {
        let ours = certificate(false);
        for (second, state) in [
            (100 * DAY - 1, ValidityState::Early),
            (100 * DAY, ValidityState::Good),
            (193 * DAY, ValidityState::Good),
            (193 * DAY + 1, ValidityState::Soon),
            (200 * DAY, ValidityState::Soon),
            (200 * DAY + 1, ValidityState::Expired),
        ] {
            assert_eq!(ours.state(at(second)), state, "{second}");
            let words = ours.warning(at(second), Side::Node);
            assert_eq!(words.is_none(), state == ValidityState::Good, "{words:?}");
            let names = |words: String| words.starts_with("/etc/node.pem: our own certificate (CN=node-1) ");
            assert!(words.is_none_or(names), "{second}");
        }
        assert_eq!((ours.left_seconds(at(200 * DAY)), ours.left_seconds(at(201 * DAY))), (0, -DAY));
    }

    #[test]
    fn words_say_who_refuses_and_what_to_do() {
        let late = |is_ca, side| certificate(is_ca).warning(at(300 * DAY), side).expect("a warning");
        assert!(
            late(false, Side::Node).contains("has expired, 1970-07-20T00:00:00Z: programs refuse it; put a renewed")
        );
        assert!(late(false, Side::Program).contains("memory nodes refuse it"));
        assert!(late(true, Side::Node).contains("still accepted here"));
        let early = certificate(false).warning(at(DAY), Side::Node).expect("a warning");
        assert!(early.contains("not valid before 1970-04-11") && early.contains("clock"), "{early}");
        // Dates that cannot be written.
        let odd = Certificate { from: i64::MIN, until: i64::MAX, ..certificate(false) };
        assert_eq!((odd.state(at(0)), odd.expires()), (ValidityState::Good, "9999-12-31T23:59:59Z".to_owned()));
    }

    #[test]
    fn each_warning_is_said_once() {
        let (mut calendar, both) = (Calendar::default(), [certificate(false), certificate(true)]);
        let mut news = |second| calendar.news(&both, at(second), Side::Node).len();
        assert_eq!(
            [news(150 * DAY), news(194 * DAY), news(195 * DAY), news(201 * DAY), news(202 * DAY)],
            [0, 2, 0, 2, 0]
        );
    }
}
