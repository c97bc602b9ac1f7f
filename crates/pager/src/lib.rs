//! Page states, swap cache, reclaim and budgets.
