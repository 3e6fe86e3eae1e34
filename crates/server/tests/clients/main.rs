//! The API as others' tools see it: schemathesis, and generated clients; and
//! as our own command line does. What a platform does with it, and then its customer in a
//! real browser, is in `examples`.

#![cfg(test)]

#[path = "../support/ask.rs"]
mod ask;
mod commands;
mod conformance;
#[expect(dead_code, reason = "a part of it is for the tests of the dashboard")]
#[path = "../dashboard/driver.rs"]
mod driver;
mod examples;
mod packages;
#[path = "../../../adapters/tests/support/scratch.rs"]
mod scratch;
mod seeds;
mod site;
