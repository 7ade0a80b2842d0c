//! Digests of bytes: of a text file, and of the assignment of rows to batches.

use std::fmt;
use std::io;

use xxhash_rust::xxh3::Xxh3;

/// XXH3-128 of bytes, as text `xxh3-128:<32 hexadecimal digits>`. It identifies a file that has no seal of its own.
///
/// ```
/// use plmkit_contract::ByteDigest;
/// let mut digest = ByteDigest::default();
/// digest.update(b"ordinal,");
/// digest.update(b"id\n");
/// assert_eq!(digest.to_string(), ByteDigest::compute(b"ordinal,id\n").to_string());
/// assert_eq!(digest.to_string(), "xxh3-128:620e7363cab8ff74d6395980d84be14d");
/// ```
#[derive(Clone, Default)]
pub struct ByteDigest(Xxh3);

impl ByteDigest {
    /// Computes the digest of `bytes`.
    pub fn compute(bytes: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.update(bytes);
        digest
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds the next batch of a packing, given the `ordinal` and the `start` of each of its rows: which rows are in which batch,
    /// and in which order. The row digest does not depend on it.
    ///
    /// ```
    /// use plmkit_contract::ByteDigest;
    /// let [mut one_batch, mut two_batches] = [ByteDigest::default(), ByteDigest::default()];
    /// one_batch.update_packing(&[0, 1], &[0, 0]);
    /// two_batches.update_packing(&[0], &[0]);
    /// two_batches.update_packing(&[1], &[0]);
    /// assert_ne!(one_batch.to_string(), two_batches.to_string());
    /// ```
    pub fn update_packing(&mut self, ordinals: &[u64], starts: &[u32]) {
        self.update(&(ordinals.len() as u64).to_le_bytes());
        for (ordinal, start) in ordinals.iter().zip(starts) {
            self.update(&ordinal.to_le_bytes());
            self.update(&start.to_le_bytes());
        }
    }
}

impl io::Write for ByteDigest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for ByteDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xxh3-128:{:032x}", self.0.digest128())
    }
}

impl fmt::Debug for ByteDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
