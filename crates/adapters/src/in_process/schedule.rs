//! (being written)
pub struct InProcessSchedule;
