//! Damage done to the programs on purpose. Slow, so run by `make torture` and not with the other tests.
#![cfg(feature = "torch")]

#[path = "../common/mod.rs"]
mod common;
mod files;
mod flip;
mod hostile;
mod hostile_model;
mod limited;
