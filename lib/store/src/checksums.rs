//! Checksums of every byte of a file, in a block just before its footer.
//!
//! Parquet and Arrow IPC files end with a footer, its length and a magic string. Readers follow the offsets in the footer, so
//! other readers do not see the block.
//!
//! ```text
//! data │ block │ footer, its length, magic string
//! block: for each segment of the data u32 bytes, XXH3-128 │ u64 segments
//!        │ XXH3-128 of the block so far and of all that follows the block │ "plmkit-x"
//! ```

use plmkit_contract::key;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::file_kind::find;

/// The most bytes of a segment. A reader reads and verifies a whole segment at once; it fits into the cache of a core.
const SEGMENT_BYTES: usize = 1 << 18;
const MAGIC: &[u8; 8] = b"plmkit-x";
/// Bytes of a segment's entry in the block.
const ENTRY: usize = 4 + 16;
/// Bytes of the block after the entries.
const HEAD: usize = 8 + 16 + MAGIC.len();

/// A file format with a footer at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Parquet,
    ArrowIpc,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::ArrowIpc => "Arrow IPC",
        }
    }

    pub(crate) const fn magic(self) -> &'static [u8] {
        match self {
            Self::Parquet => b"PAR1",
            Self::ArrowIpc => b"ARROW1",
        }
    }

    /// Bytes after the footer: its length as a u32, and the magic string.
    pub(crate) fn trailer(self) -> usize {
        4 + self.magic().len()
    }

    /// Bytes of the footer and the trailer of a file that ends with `end`; `None` for another format.
    fn footer(self, end: &[u8]) -> Option<usize> {
        let (_, length) = end.strip_suffix(self.magic())?.split_last_chunk()?;
        Some(u32::from_le_bytes(*length) as usize + self.trailer())
    }
}

/// A range of bytes of a file, with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) bytes: u32,
    /// XXH3-128.
    pub(crate) digest: u128,
}

/// The bytes of some segments.
pub(crate) fn bytes(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .map(|segment| u64::from(segment.bytes))
        .sum()
}

impl Segment {
    /// Whether `bytes` match the checksum.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes as usize && xxh3_128(bytes) == self.digest
    }
}

/// Computes the checksums of a file that is written from start to end.
#[derive(Clone, Default)]
pub(crate) struct Checksums {
    segments: Vec<Segment>,
    /// Digest and size of the current segment.
    digest: Xxh3,
    bytes: usize,
}

impl Checksums {
    /// Adds the next bytes.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = SEGMENT_BYTES - self.bytes;
            let (added, rest) = bytes.split_at(room.min(bytes.len()));
            self.digest.update(added);
            self.bytes += added.len();
            if self.bytes == SEGMENT_BYTES {
                self.end_segment();
            }
            bytes = rest;
        }
    }

    /// Starts a new segment with the next byte, so that it can be read without the bytes before it.
    pub(crate) fn end_segment(&mut self) {
        if self.bytes > 0 {
            self.segments.push(Segment {
                bytes: self.bytes as u32,
                digest: self.digest.digest128(),
            });
            self.digest.reset();
            self.bytes = 0;
        }
    }

    /// Adds bytes with known checksums.
    pub(crate) fn extend(&mut self, segments: &[Segment]) {
        self.end_segment();
        self.segments.extend_from_slice(segments);
    }

    /// Returns the segments of all bytes.
    pub(crate) fn into_segments(mut self) -> Vec<Segment> {
        self.end_segment();
        self.segments
    }

    /// Inserts the block into `end`, the last bytes of the file.
    ///
    /// # Panics
    /// If `end` does not hold the whole footer.
    pub(crate) fn seal(mut self, format: Format, end: &[u8]) -> Vec<u8> {
        let footer = format.footer(end);
        let start = footer.and_then(|footer| end.len().checked_sub(footer));
        let (data, footer) = end.split_at(start.expect("the end of a file of this format"));
        self.update(data);
        let segments = self.into_segments();
        let mut block = Vec::with_capacity(segments.len() * ENTRY + HEAD);
        for segment in &segments {
            block.extend(segment.bytes.to_le_bytes());
            block.extend(segment.digest.to_le_bytes());
        }
        block.extend((segments.len() as u64).to_le_bytes());
        let digest = digest(&[&block, footer]);
        block.extend(digest.to_le_bytes());
        block.extend(MAGIC);
        [data, &block, footer].concat()
    }
}

/// Why the end of a file cannot be parsed.
#[derive(Debug)]
pub(crate) enum EndError {
    /// This many of the file's last bytes are needed.
    NeedsBytes(usize),
    /// It may be that of a sound file of another program.
    NoChecksums(String),
    Invalid(String),
}

/// The verified end of a file.
#[derive(Debug)]
pub(crate) struct End {
    /// The segments of all bytes before the block.
    pub(crate) segments: Vec<Segment>,
    /// Bytes of the block.
    pub(crate) block: usize,
    /// Bytes of the footer and the trailer.
    pub(crate) footer: usize,
}

impl End {
    /// Parses and verifies the last bytes of a file.
    pub(crate) fn parse(format: Format, end: &[u8]) -> Result<Self, EndError> {
        let invalid = |what: &str| EndError::Invalid(what.to_owned());
        let start_of = |bytes: usize| {
            let start = end.len().checked_sub(bytes);
            start.ok_or(EndError::NeedsBytes(bytes))
        };
        start_of(format.trailer())?;
        let footer = format.footer(end).ok_or_else(|| {
            let magic = String::from_utf8_lossy(format.magic());
            invalid(&format!("it does not end with '{magic}'"))
        })?;
        let head = start_of(HEAD + footer)?;
        let (head, footer_bytes) = end[head..].split_at(HEAD);
        let (counted, head) = head.split_at(8);
        let (expected, magic) = head.split_at(16);
        if magic != MAGIC {
            // Programs that rewrite a file leave out its metadata.
            let is_own = find(footer_bytes, key::PREFIX.as_bytes()).is_some();
            let origin = if is_own {
                "damaged, or rewritten by another program"
            } else {
                "not written by plmkit"
            };
            return Err(EndError::NoChecksums(format!(
                "{origin}: it lacks the checksums that plmkit puts before a footer"
            )));
        }
        let damaged = || invalid("its footer is not as it was written");
        let count = u64::from_le_bytes(counted.try_into().expect("8 bytes"));
        let entries = usize::try_from(count).ok();
        let entries = entries.and_then(|count| count.checked_mul(ENTRY));
        let bytes = entries.and_then(|entries| entries.checked_add(HEAD + footer));
        let start = start_of(bytes.ok_or_else(damaged)?)?;
        let table = &end[start..end.len() - footer - HEAD];
        if digest(&[table, counted, footer_bytes]).to_le_bytes() != expected {
            return Err(damaged());
        }
        let segments = table.chunks_exact(ENTRY).map(|entry| {
            let (bytes, digest) = entry.split_at(4);
            Segment {
                bytes: u32::from_le_bytes(bytes.try_into().expect("4 bytes")),
                digest: u128::from_le_bytes(digest.try_into().expect("16 bytes")),
            }
        });
        Ok(Self {
            segments: segments.collect(),
            block: table.len() + HEAD,
            footer,
        })
    }
}

/// Computes the XXH3-128 of the concatenation of `parts`.
fn digest(parts: &[&[u8]]) -> u128 {
    let mut digest = Xxh3::default();
    for part in parts {
        digest.update(part);
    }
    digest.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (Vec<u8>, usize) {
        let mut sums = Checksums::default();
        let data = vec![7; SEGMENT_BYTES + 5];
        sums.update(&data[..3]);
        sums.end_segment();
        sums.update(&data[3..]);
        let end = [b"index".as_slice(), b"footer", &[6, 0, 0, 0], b"PAR1"].concat();
        let end = sums.seal(Format::Parquet, &end);
        ([data, end].concat(), SEGMENT_BYTES + 5 + 5)
    }

    #[test]
    fn the_end_describes_the_bytes_before_it() {
        let (file, data) = file();
        let end = End::parse(Format::Parquet, &file).expect("just sealed");
        let bytes: Vec<u32> = end.segments.iter().map(|segment| segment.bytes).collect();
        assert_eq!(bytes, [3, SEGMENT_BYTES as u32, 7]);
        assert_eq!(end.footer, 14);
        assert_eq!(data + end.block + end.footer, file.len());
        assert_eq!(end.segments[0].digest, digest(&[&file[..3]]));
        let mut bytes = 0;
        while let Err(EndError::NeedsBytes(more)) =
            End::parse(Format::Parquet, &file[file.len() - bytes..])
        {
            assert!(more > bytes);
            bytes = more;
        }
        assert_eq!(bytes, end.block + end.footer);
    }

    #[test]
    fn every_flipped_bit_of_the_end_is_detected() {
        let (file, data) = file();
        for at in data..file.len() {
            for bit in 0..8 {
                let mut flipped = file.clone();
                flipped[at] ^= 1 << bit;
                let parsed = End::parse(Format::Parquet, &flipped);
                assert!(parsed.is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}
