//! What `valgrind --tool=lackey --trace-mem=yes` prints (Valgrind manual, ch. 13).
//!
//! ```text
//! I  04001090,3        instruction: left out, as the tracer leaves code out
//!  L 1ffeffe7e0,8      load
//!  S 04222cac,4        store
//!  M 0421c7cc,4        load and store
//! ```
//! Addresses are hexadecimal; an access may reach into the next page. Lackey does not say which thread it was, and mixes its
//! lines with the program's own words and with Valgrind's (`==123== …`): what is no access is passed over.

use super::touches::Touches;
use super::{ImportError, Imported, Line, for_each_line, refuse};
use crate::Head;
use std::io;

/// No access of one instruction is longer: an XSAVE area.
const ACCESS_BYTES_MAX: u64 = 1 << 16;

/// Reads lackey's output into a trace with `head`, whose page and microset sizes count.
///
/// # Errors
/// An access that makes no sense, no access at all, or what reading and writing say.
pub fn lackey(input: impl io::BufRead, sink: impl io::Write, head: &Head) -> Result<Imported, ImportError> {
    let mut touches = Touches::new(sink, head)?;
    let page_bytes = u64::from(head.page_bytes.max(1));
    let lines = for_each_line(input, |number, Line { text: line, .. }| {
        let Some(access) = [" L ", " S ", " M "].iter().find_map(|kind| line.strip_prefix(kind)) else { return Ok(()) };
        let parsed = access
            .split_once(',')
            .and_then(|(address, bytes)| Some((u64::from_str_radix(address, 16).ok()?, bytes.parse::<u64>().ok()?)));
        let (address, bytes) = parsed
            .filter(|(_, bytes)| (1..=ACCESS_BYTES_MAX).contains(bytes))
            .ok_or_else(|| refuse(number, "this is no access of lackey's (' L ADDRESS,BYTES')", line))?;
        let last = address.checked_add(bytes - 1).ok_or_else(|| refuse(number, "the access ends nowhere", line))?;
        (address / page_bytes..=last / page_bytes).try_for_each(|page| touches.touch(0, page))
    })?;
    touches.finish(lines, "lackey prints accesses with --trace-mem=yes, on standard error")
}
