//! Round trips through xz and zstd with windows as large as their input.

use super::data;
use crate::{Line, MIB, Need, Place, Scenario};

/// `xz`, then `xz -d`.
pub const XZ: Scenario = Scenario {
    name: "xz",
    about: "xz round trip, hash chains over a large dictionary",
    needs: &[Need::Program("xz")],
    small_objects: false,
    prepare: |place| data::text(&place.inputs.join("text"), xz_input_bytes(place), 2),
    command: xz,
    beside: None,
    outputs: &["packed", "unpacked"],
};

/// The encoder's window, hash table and chains come to about five bytes for each byte of input.
fn xz_input_bytes(place: &Place) -> u64 {
    place.size_bytes / 5
}

fn xz(place: &Place) -> Line {
    let dictionary = (xz_input_bytes(place) / MIB + 1).next_power_of_two();
    let text = place.input("text");
    Line::shell(format!(
        "xz -T1 --lzma2=preset=1,dict={dictionary}MiB,mf=hc3,mode=fast,nice=32,depth=4 -c '{text}' > packed\n\
         xz -dc packed > unpacked\n\
         cmp '{text}' unpacked"
    ))
}

/// `zstd --long`, then `zstd -d --long`.
pub const ZSTD: Scenario = Scenario {
    name: "zstd",
    about: "zstd --long round trip",
    needs: &[Need::Program("zstd")],
    small_objects: false,
    prepare: |place| data::text(&place.inputs.join("text"), zstd_input_bytes(place), 3),
    command: zstd,
    beside: None,
    outputs: &["packed", "unpacked"],
};

/// The window holds the whole input; tables and buffers come on top.
fn zstd_input_bytes(place: &Place) -> u64 {
    place.size_bytes.saturating_sub(8 * MIB)
}

fn zstd(place: &Place) -> Line {
    let window = zstd_input_bytes(place).next_power_of_two().ilog2().clamp(25, 30);
    let text = place.input("text");
    Line::shell(format!(
        "zstd -q -3 -T1 --long={window} -c '{text}' > packed\n\
         zstd -q -d --long={window} -c packed > unpacked\n\
         cmp '{text}' unpacked"
    ))
}
