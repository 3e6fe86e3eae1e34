//! The API as others' tools see it: schemathesis, and generated clients; and
//! as our own command line does.

#![cfg(test)]

#[path = "../support/ask.rs"]
mod ask;
mod commands;
mod conformance;
mod examples;
mod packages;
mod site;
