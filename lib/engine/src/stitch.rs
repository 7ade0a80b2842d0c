//! Stitching: one row for a protein that was cut into overlapping windows.
//!
//! This module is pure: it opens no file and runs no model. Windows of a protein come one after the other. A residue near the end
//! of a window lacks context on one side, so a residue in several windows comes mostly from the window in whose middle it lies
//! ([`Blend`]). Poolings are over the blended residues of the whole protein ([`Moments`]).

mod blend;
mod moments;
mod order;
mod stitcher;

pub(crate) use order::WindowOrder;
pub(crate) use stitcher::Stitcher;

use blend::Blend;
use moments::Moments;
