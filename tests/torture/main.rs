//! Damage done to the programs on purpose: minutes of kills, full disks and spoiled files. Run by `make torture` and
//! not with the other tests.
#![cfg(feature = "torch")]

#[path = "../common/mod.rs"]
mod common;
mod disk;
mod files;
mod flip;
mod hostile;
mod hostile_model;
mod inputs;
mod kill;
mod limited;
mod tree;
