//! Deliberate damage: kills, full disks and damaged files. The tests take minutes; `make torture` runs them.
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod flip;
mod hostile;
mod inputs;
mod kill;
mod limited;
mod locks;
mod tree;
