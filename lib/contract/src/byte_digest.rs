//! The digest of a text file.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

/// XXH3-128 of bytes, as text `xxh3-128:<32 hexadecimal digits>`: what a file without a seal of its own is known by.
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
    /// The digest of `bytes`.
    pub fn compute(bytes: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.update(bytes);
        digest
    }

    /// Adds the bytes that come next.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl fmt::Display for ByteDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xxh3-128:{:032x}", self.0.digest128())
    }
}
