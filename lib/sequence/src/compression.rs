//! Compressed input, detected by its first bytes.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

/// The number of bytes that [`Compression::detect`] needs.
pub(crate) const MAGIC_LEN: usize = 6;

/// The size of reads of compressed bytes.
const BUFFER: usize = 1 << 16;

/// The compression of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[strum(to_string = "plain text")]
    Plain,
    /// gzip with one or many members. BGZF (from `bgzip`) is a variant.
    Gzip,
    /// Zstandard with one or many frames.
    Zstd,
    /// A known compression that is not supported.
    #[strum(to_string = "{0}")]
    Unsupported(&'static str),
}

impl Compression {
    /// Detects the compression from the first [`MAGIC_LEN`] bytes, or fewer in a shorter stream.
    pub(crate) fn detect(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A skippable frame may come first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Self::Unsupported("xz"),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Unsupported("bzip2"),
            [b'P', b'K', 3, 4, ..] => Self::Unsupported("zip"),
            _ => Self::Plain,
        }
    }

    /// Guesses the compression of an empty file from its name.
    pub(crate) fn from_name(name: &str) -> Self {
        match name.rsplit_once('.') {
            Some((_, "gz" | "bgz" | "bgzf")) => Self::Gzip,
            Some((_, "zst" | "zstd")) => Self::Zstd,
            _ => Self::Plain,
        }
    }

    /// Decompresses `stream`. A truncated stream is an error of kind `UnexpectedEof`.
    pub(crate) fn decode<R: Read + Send + 'static>(
        self,
        stream: R,
    ) -> io::Result<Box<dyn Read + Send>> {
        let buffered = |stream| BufReader::with_capacity(BUFFER, stream);
        Ok(match self {
            Self::Plain | Self::Unsupported(_) => Box::new(stream),
            Self::Gzip => Box::new(GzipMembers::new(buffered(stream))),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(buffered(stream))?),
        })
    }
}

/// Decompresses the members of a gzip stream.
///
/// A BGZF stream ends with an empty member. A file that is truncated between two members is valid gzip; only the missing empty
/// member shows the truncation.
struct GzipMembers<R> {
    member: Option<GzDecoder<R>>,
    empty: bool,
}

impl<R: BufRead> GzipMembers<R> {
    fn new(stream: R) -> Self {
        Self {
            member: Some(GzDecoder::new(stream)),
            empty: true,
        }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 {
                self.empty = false;
                return Ok(count);
            }
            if member.get_mut().fill_buf()?.is_empty() {
                if is_bgzf(member) && !self.empty {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                return Ok(0);
            }
            self.empty = true;
            self.member = self
                .member
                .take()
                .map(|member| GzDecoder::new(member.into_inner()));
        }
        Ok(0)
    }
}

/// Whether a member's header has the extra field `BC` of BGZF (SAM specification, section 4.1).
fn is_bgzf<R>(member: &GzDecoder<R>) -> bool {
    let extra = member.header().and_then(|header| header.extra());
    extra.is_some_and(|extra| extra.starts_with(b"BC\x02\0"))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    fn bgzf(text: &[u8]) -> Vec<u8> {
        let mut writer = noodles_bgzf::io::Writer::new(Vec::new());
        writer.write_all(text).expect("memory");
        writer.finish().expect("memory")
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 3).expect("memory")
    }

    fn plain(stream: Vec<u8>) -> io::Result<Vec<u8>> {
        let format = Compression::detect(&stream[..stream.len().min(MAGIC_LEN)]);
        let mut text = Vec::new();
        format.decode(Cursor::new(stream))?.read_to_end(&mut text)?;
        Ok(text)
    }

    fn text() -> Vec<u8> {
        (0..200_000u32)
            .flat_map(|i| [b'A' + (i.wrapping_mul(2_654_435_761) >> 28) as u8])
            .collect()
    }

    #[test]
    fn members_and_frames_are_joined() {
        let skippable = [0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3].to_vec();
        let three = |encode: fn(&[u8]) -> Vec<u8>| [encode(b">a\nM"), encode(b""), encode(b"K\n")];
        for stream in [
            three(gzip).concat(),
            three(bgzf).concat(),
            three(zstd).concat(),
            [bgzf(b">a\n"), gzip(b"MK\n")].concat(),
            [skippable, zstd(b">a\nMK\n")].concat(),
        ] {
            assert_eq!(plain(stream).expect("intact"), b">a\nMK\n");
        }
        assert_eq!(plain(Vec::new()).expect("empty"), b"");
    }

    #[test]
    fn a_cut_stream_is_an_error_wherever_it_is_cut() {
        for encode in [gzip, bgzf, zstd] {
            let whole = encode(&text());
            let cuts = (MAGIC_LEN..whole.len())
                .step_by(997)
                .chain(whole.len() - 30..whole.len());
            for end in cuts {
                let error = plain(whole[..end].to_vec()).expect_err("cut");
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {end}");
            }
        }
    }

    #[test]
    fn damage_and_foreign_bytes_after_the_end_are_errors() {
        let mut whole = gzip(&text());
        let middle = whole.len() / 2;
        whole[middle] ^= 1;
        let error = plain(whole).expect_err("damaged");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        for encode in [gzip, zstd] {
            assert!(plain([&encode(b"MK")[..], b"garbage, twenty bytes"].concat()).is_err());
        }
    }

    #[test]
    fn unsupported_formats_are_named() {
        for (magic, expected) in [
            (b"\xfd7zXZ\0", Compression::Unsupported("xz")),
            (b"BZh91A", Compression::Unsupported("bzip2")),
            (b"PK\x03\x04\x14\0", Compression::Unsupported("zip")),
            (b">BZh91", Compression::Plain),
        ] {
            assert_eq!(Compression::detect(magic), expected);
        }
    }
}
