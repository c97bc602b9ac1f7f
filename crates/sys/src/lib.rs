//! Every system call that Hinterland makes.
