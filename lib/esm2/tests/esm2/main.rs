//! Compares the crate with references, checks batch invariance, and loads damaged checkpoints.

#![allow(unreachable_pub, reason = "one test program, not a library")]

mod checkpoints;
mod company;
mod damage;
mod golden;
mod mistakes;
mod oracle;
mod relatives;
mod support;
