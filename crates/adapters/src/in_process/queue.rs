//! (being written)
pub struct InProcessQueue;
