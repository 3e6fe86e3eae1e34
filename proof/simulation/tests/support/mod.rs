//! What the contract suites need of the models.

pub(crate) mod sql;
