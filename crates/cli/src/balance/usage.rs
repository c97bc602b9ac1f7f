//! Reads what servers of a cluster used of their memory, record by record: the public traces of Alibaba.
//!
//! | trace | file | columns (no header) |
//! |---|---|---|
//! | 2017 | `server_usage.csv` | time, server, util:CPU, **util:memory**, util:disk, load1, load5, load15 |
//! | 2018 | `machine_usage.csv` | server, time, cpu_util_percent, **mem_util_percent**, mem_gps, mkpi, net_in, net_out, disk_io_percent |
//!
//! Source: github.com/alibaba/clusterdata, `trace_201708.md` and `schema.md` of 2018. Which one it is, the first record says: in 2018 it begins
//! with a server's name, in 2017 with a time. Records without memory, or with what is no percentage (the traces have -1 and 101
//! for what could not be measured), are counted and left out. The file is read as it comes: what is kept is a sum for each server.

use super::effectiveness::Utilisations;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};

/// More servers than any cluster has: a file with more is of another kind.
const SERVERS_MAX: usize = 1 << 20;
/// Bytes in a line: several times what the traces have.
const LINE_BYTES_MAX: usize = 4096;
/// Columns of the wider format, and one more.
const COLUMNS_MAX: usize = 10;
/// Bytes of a line that are shown when it is refused.
const SHOWN_MAX: usize = 40;
/// Lines between two reports of progress.
const REPORT_LINES: u64 = 1 << 16;

/// Which of the public traces a file is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `server_usage.csv`.
    Alibaba2017,
    /// `machine_usage.csv`.
    Alibaba2018,
}

impl Format {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Alibaba2017 => "Alibaba 2017",
            Format::Alibaba2018 => "Alibaba 2018",
        }
    }

    /// Columns: how many, that of the server, that of the time, that of the memory.
    fn columns(self) -> (usize, usize, usize, usize) {
        match self {
            Format::Alibaba2017 => (8, 1, 0, 3),
            Format::Alibaba2018 => (9, 0, 1, 3),
        }
    }

    fn of(record: &Record<'_>) -> Option<Format> {
        let format = if number(record.fields[0]).is_some() { Format::Alibaba2017 } else { Format::Alibaba2018 };
        (record.columns == format.columns().0).then_some(format)
    }
}

/// What was read.
pub struct Usage {
    /// Which trace it is of.
    pub format: Format,
    /// Servers with a utilisation.
    pub server_count: u64,
    /// Records with a utilisation.
    pub record_count: u64,
    /// Records without one.
    pub skipped_count: u64,
    /// The mean of each server over the trace.
    pub by_server: Utilisations,
    /// Each record: a server at a moment.
    pub by_moment: Utilisations,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// It cannot be read.
    #[error("{0}")]
    Io(io::Error),
    /// It is none of the known kinds.
    #[error(
        "line {line} is of neither trace: server_usage.csv of Alibaba 2017 has 8 columns and begins with a time, machine_usage.csv of 2018 has 9 and \
         begins with a server; found '{found}'"
    )]
    Format {
        /// Where, from 1.
        line: u64,
        /// Its beginning.
        found: String,
    },
    /// A record is damaged.
    #[error("line {line}: {what}")]
    Record {
        /// Where, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// There is nothing in it.
    #[error("no record says what a server used of its memory ({})", if *skipped == 0 { "there is none".to_owned() } else { format!("{skipped} do not") })]
    Empty {
        /// Records without a utilisation.
        skipped: u64,
    },
}

/// The fields of a line. The traces quote nothing.
struct Record<'a> {
    fields: [&'a [u8]; COLUMNS_MAX],
    /// How many there are; those beyond the array are only counted.
    columns: usize,
}

impl<'a> Record<'a> {
    fn of(line: &'a [u8]) -> Record<'a> {
        let mut record = Record { fields: [b""; COLUMNS_MAX], columns: 0 };
        for field in line.split(|byte| *byte == b',') {
            if let Some(place) = record.fields.get_mut(record.columns) {
                *place = field;
            }
            record.columns += 1;
        }
        record
    }
}

fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.trim().parse().ok()
}

fn shown(field: &[u8]) -> String {
    String::from_utf8_lossy(&field[..field.len().min(SHOWN_MAX)]).into_owned()
}

/// Reads a file; `progress` gets the bytes that were read so far, now and then.
///
/// # Errors
/// The first line that is not as it should be.
pub fn read(file: impl Read, mut progress: impl FnMut(u64)) -> Result<Usage, UsageError> {
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut servers: HashMap<Box<[u8]>, (u64, f64)> = HashMap::new();
    let (mut by_moment, mut skipped_count, mut format) = (Utilisations::default(), 0, None);
    let (mut text, mut line, mut bytes) = (Vec::new(), 0u64, 0u64);
    loop {
        text.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut reader).take(limit).read_until(b'\n', &mut text).map_err(UsageError::Io)?;
        if read == 0 {
            break;
        }
        (line, bytes) = (line + 1, bytes + read as u64);
        if line.is_multiple_of(REPORT_LINES) {
            progress(bytes);
        }
        let damaged = |what: String| UsageError::Record { line, what };
        if read > LINE_BYTES_MAX {
            return Err(damaged(format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        let text = text.trim_ascii_end();
        if text.is_empty() {
            continue;
        }
        let record = Record::of(text);
        let Some(known) = format.or_else(|| Format::of(&record)) else {
            return Err(UsageError::Format { line, found: shown(text) });
        };
        format = Some(known);
        let Record { fields, columns } = record;
        let (wanted, server, time, memory) = known.columns();
        if columns != wanted {
            return Err(damaged(format!("{columns} columns where {} has {wanted}", known.name())));
        }
        if number(fields[time]).is_none() {
            return Err(damaged(format!("'{}' is no time", shown(fields[time]))));
        }
        let used = match fields[memory] {
            b"" => None,
            field => Some(number(field).ok_or_else(|| damaged(format!("'{}' is no utilisation", shown(field))))?),
        };
        let Some(percent) = used.filter(|percent| by_moment.add(*percent)) else {
            skipped_count += 1;
            continue;
        };
        if let Some((count, sum)) = servers.get_mut(fields[server]) {
            (*count, *sum) = (*count + 1, *sum + percent);
            continue;
        }
        if fields[server].is_empty() {
            return Err(damaged("the server has no name".into()));
        }
        if servers.len() == SERVERS_MAX {
            return Err(damaged(format!("more than {SERVERS_MAX} servers")));
        }
        servers.insert(fields[server].into(), (1, percent));
    }
    let mut by_server = Utilisations::default();
    for (count, sum) in servers.values() {
        #[allow(clippy::cast_precision_loss, reason = "counts of records are far below 2^53")]
        by_server.add((sum / *count as f64).min(100.0));
    }
    match format.filter(|_| by_server.count() > 0) {
        Some(format) => Ok(Usage {
            format,
            server_count: by_server.count(),
            record_count: by_moment.count(),
            skipped_count,
            by_server,
            by_moment,
        }),
        None => Err(UsageError::Empty { skipped: skipped_count }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_2017: &str =
        "39600,1,20.5,60.25,40,1,2,3\n39600,2,20.5,10,40,1,2,3\n39900,1,20.5,20.25,40,1,2,3\n39900,2,20,,40,1,2,3\n";
    const OF_2018: &str = "m_1932,386640,41,92,,,43.04,33.08,5\nm_1932,386670,39,94,,,43,33,5\nm_7,386640,1,-1,,,,,\nm_7,386670,1,101,,,,,\nm_7,386700,1,30,,,,,\n";

    fn refused(text: &str) -> String {
        match read(text.as_bytes(), |_| {}) {
            Ok(usage) => panic!("{} records of '{text}'", usage.record_count),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn both_public_formats_are_read() {
        let usage = read(OF_2017.as_bytes(), |_| {}).unwrap();
        let counts = |usage: &Usage| (usage.server_count, usage.record_count, usage.skipped_count);
        assert_eq!((usage.format, counts(&usage)), (Format::Alibaba2017, (2, 3, 1)));
        // Servers: 40.25 and 10; moments: 60.25, 10, 20.25.
        assert!((usage.by_server.mean() - 25.125).abs() < 1e-9 && (usage.by_moment.mean() - 90.5 / 3.0).abs() < 1e-9);
        let usage = read(OF_2018.as_bytes(), |_| {}).unwrap();
        assert_eq!((usage.format, counts(&usage)), (Format::Alibaba2018, (2, 3, 2)));
        assert!((usage.by_server.mean() - 61.5).abs() < 1e-9);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, words) in [
            ("", "no record says what a server used of its memory (there is none)"),
            ("m_7,386640,1,-1,,,,,\n", "no record says what a server used of its memory (1 do not)"),
            ("machine_id,time_stamp\n", "line 1 is of neither trace"),
            ("hello\n", "found 'hello'"),
            (&[OF_2018, &"x".repeat(10_000)].concat(), "line 6: it is longer than 4096 bytes"),
            (&[OF_2018, "m_1,1,1,2,,,,,,,,\n"].concat(), "line 6: 12 columns"),
            (&[OF_2018, "m_1,386640\n"].concat(), "line 6: 2 columns where Alibaba 2018 has 9"),
            (&[OF_2018, "m_1,386640,1,much,,,,,\n"].concat(), "line 6: 'much' is no utilisation"),
            (&[OF_2018, "m_1,soon,1,2,,,,,\n"].concat(), "line 6: 'soon' is no time"),
            (&[OF_2018, "\n\nm_1,soon,1,2,,,,,\n"].concat(), "line 8: 'soon' is no time"),
            (&[OF_2018, ",386640,1,2,,,,,\n"].concat(), "line 6: the server has no name"),
            (&[OF_2017, "40000,3,1,\u{fffd},4,1,2,3\n"].concat(), "line 5: "),
        ] {
            let found = refused(text);
            assert!(found.contains(words), "{text}: {found}");
        }
    }

    #[test]
    fn progress_is_told_and_never_goes_back() {
        let text = "m_1,386640,41,92,,,43.04,33.08,5\n".repeat(200_000);
        let mut told = Vec::new();
        let usage = read(text.as_bytes(), |bytes| told.push(bytes)).unwrap();
        assert_eq!((usage.record_count, usage.server_count), (200_000, 1));
        assert!(told.len() == 3 && told.is_sorted() && told[2] <= text.len() as u64, "{told:?}");
    }
}
