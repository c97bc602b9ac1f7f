//! Records of versions 1 and 2, which are read and not written: a number whose two lowest bits say what it is.
//!
//! ```text
//!   0  touch           the rest: difference to the thread's last page (zigzag); a second number: its CPU time since then, in ns
//!   1  other thread    the rest: which
//!   2  other region    the rest: which, for this thread
//!   3  end of a microset
//! ```

use crate::bytes::{Bytes, unzigzag};
use crate::record::{Context, Record, index};

const TOUCH: u64 = 0;
const THREAD: u64 = 1;
const REGION: u64 = 2;

/// Takes the next record; `bytes` are not empty.
///
/// # Errors
/// What makes no sense.
#[inline]
pub fn take(context: &mut Context, bytes: &mut Bytes<'_>, regions: u32) -> Result<Record, &'static str> {
    const CUT: &str = "a record is cut off";
    loop {
        let record = bytes.number().ok_or(CUT)?;
        let value = record >> 2;
        match record & 3 {
            TOUCH => {
                if context.last().region >= regions {
                    return Err("a region was never declared");
                }
                return context.touch(unzigzag(value), bytes.number().ok_or(CUT)?, false);
            }
            THREAD => context.thread = index(value).ok_or("a thread's number is too large")?,
            REGION => context.last().region = index(value).ok_or("a region's number is too large")?,
            _ if value == 0 => return Ok(Record::End(0)),
            _ => return Err("a record of an unknown kind"),
        }
    }
}
