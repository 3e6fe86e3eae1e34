//! The real `domain` and `engine` over model ports, in virtual time, with
//! every random choice from a seed.

pub mod model;
