//! The decoder of the protocol: whatever arrives, it neither panics nor reads beyond its bounds. Checksums are made right first, as a
//! hostile sender does; else hardly any input would come past them.

use hinterland_testkit::messages::{described, sealed_again};
use hinterland_wire::{
    CONTROL_BYTES_MAX, DATA_BYTES_MAX, Directory, Endpoint, HEADER_BYTES, HELLO_BYTES, Header, Hello, WELCOME_BYTES,
    Welcome,
};

/// One input.
pub fn run(bytes: &[u8]) {
    if let Some(hello) = bytes.first_chunk::<HELLO_BYTES>() {
        let _ = Hello::decode(hello).map(|hello| hello.agree((1, 1)));
    }
    if let Some(welcome) = bytes.first_chunk::<WELCOME_BYTES>() {
        let _ = Welcome::decode(welcome);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        urls(text);
    }
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let mut message = bytes.to_vec();
    sealed_again(&mut message);
    if let Ok((header, control)) = Header::decode_whole(&message) {
        assert!(control.len() <= CONTROL_BYTES_MAX && header.data_bytes <= DATA_BYTES_MAX);
        // Looks at every entry of every list.
        let _ = described(&header, control);
    }
}

/// What is read is read the same again.
fn urls(text: &str) {
    if let Ok(endpoint) = text.parse::<Endpoint>() {
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
    }
    if let Ok(directory) = text.parse::<Directory>() {
        assert_eq!(directory.to_string().parse(), Ok(directory));
    }
}
