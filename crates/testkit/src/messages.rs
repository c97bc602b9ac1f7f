//! Messages of the protocol: random ones, what they say, and damaged ones that look undamaged.

mod any_message;
mod described;
mod sealed;

pub use any_message::any_message;
pub use described::described;
pub use sealed::sealed_again;
