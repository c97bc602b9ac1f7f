//! Memory nodes: the contract of backends over them, pools and their bad days, shared slabs, credentials, shares of the processors, and what
//! hostile clients can do.

mod contract;
mod hostile;
mod pool;
mod secured;
mod shared;
mod shares;
