//! What the row digest does not see: how rows are shared out among batches.

use std::fmt;

use crate::ByteDigest;

/// Which rows are in which batch, and in which order: XXH3-128 over the keys of all rows, batch after batch.
///
/// ```
/// use plmkit_contract::PackingDigest;
/// let [mut together, mut apart] = [PackingDigest::default(), PackingDigest::default()];
/// together.update(&[0, 1], &[0, 0]);
/// apart.update(&[0], &[0]);
/// apart.update(&[1], &[0]);
/// assert_ne!(together.to_string(), apart.to_string());
/// ```
#[derive(Clone, Default)]
pub struct PackingDigest(ByteDigest);

impl PackingDigest {
    /// Adds a batch: the ordinals of its rows, and the offsets of their windows, as many.
    pub fn update(&mut self, ordinals: &[u64], starts: &[u32]) {
        self.0.update(&(ordinals.len() as u64).to_le_bytes());
        for (ordinal, start) in ordinals.iter().zip(starts) {
            self.0.update(&ordinal.to_le_bytes());
            self.0.update(&start.to_le_bytes());
        }
    }
}

impl fmt::Display for PackingDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PackingDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackingDigest({self})")
    }
}
