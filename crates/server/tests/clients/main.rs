//! The API as others' tools see it: schemathesis, and generated clients.

#![cfg(test)]

mod conformance;
mod examples;
mod site;
