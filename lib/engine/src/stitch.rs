//! One row for a protein that is longer than what is computed at once, from its overlapping windows.
//!
//! Pure: the windows come one after the other, and nothing is opened or computed by a model here. What a residue near
//! the end of a window sees is cut off on one side, so a residue that several windows hold is taken mostly from the one
//! in whose middle it lies ([`Blend`]). Poolings are over the blended residues of the whole protein ([`Moments`]).

mod blend;
mod moments;
mod order;
mod protein;

pub(crate) use order::{Disorder, WindowOrder};
pub(crate) use protein::{Stitched, Stitcher, Whole};

use blend::Blend;
use moments::{Moments, WeightedMean};
