//! The crate against references, against itself in other company, and against damaged checkpoints.

#![allow(unreachable_pub, reason = "one test program, not a library")]

mod checkpoints;
mod company;
mod damage;
mod golden;
mod mistakes;
mod oracle;
mod support;
