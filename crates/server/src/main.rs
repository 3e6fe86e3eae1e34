//! The `paceline` binary.

fn main() {}
