//! What Paceline is deployed with fits together: the manifests as kustomize
//! builds them, compose.yaml, the Dockerfile, and the pages that describe them.
//!
//! Whether each object is one that Kubernetes knows is checked by
//! `scripts/manifests` against its schemas, and here against its types.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod access;
mod api_server;
mod applied;
mod bases;
mod built;
mod database_role;
mod image;
mod kinds;
mod kubectl;
mod network;
mod pages;
mod pods;
mod published;
mod scaling;
mod servers;
mod settings;
mod shards;
mod types;
mod workloads;
