//! Compressed input, detected by its first bytes.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use plmkit_kit::path_text;

use crate::input::shown;

/// The number of bytes that [`Compression::detect`] needs.
pub(crate) const MAGIC_LEN: usize = 6;

/// The size of reads of compressed bytes.
const BUFFER: usize = 1 << 16;

/// The compression of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Compression {
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

    /// Decompresses `stream`, the bytes of `input`. A truncated stream is an error of kind `UnexpectedEof`.
    pub(crate) fn decode<R: Read + Send + 'static>(
        self,
        stream: R,
        input: &Path,
    ) -> io::Result<Box<dyn Read + Send>> {
        let buffered = |stream| BufReader::with_capacity(BUFFER, stream);
        Ok(match self {
            Self::Plain | Self::Unsupported(_) => Box::new(stream),
            Self::Gzip => Box::new(GzipMembers {
                input: shown(input).to_owned(),
                member: Some(GzDecoder::new(buffered(stream))),
                empty: true,
            }),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(buffered(stream))?),
        })
    }
}

/// Decompresses the members of a gzip stream.
///
/// Zero bytes may follow a member: tapes and copies by blocks pad files. A BGZF stream ends with an empty member. Writers that stream
/// may leave it out, and a file that is truncated between two members lacks it too: that is a warning, as in htslib.
struct GzipMembers<R> {
    input: PathBuf,
    member: Option<GzDecoder<R>>,
    empty: bool,
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 {
                self.empty = false;
                return Ok(count);
            }
            skip_zeros(member.get_mut())?;
            let ended = member.get_mut().fill_buf()?.is_empty();
            if ended && is_bgzf(member) && !self.empty {
                tracing::warn!(
                    "{}: the end block of BGZF, 28 bytes, is missing: the file may be cut; every record before its end is read",
                    path_text(&self.input)
                );
            }
            self.empty = true;
            let rest = self.member.take().filter(|_| !ended);
            self.member = rest.map(|member| GzDecoder::new(member.into_inner()));
        }
        Ok(0)
    }
}

fn skip_zeros(stream: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = stream.fill_buf()?;
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        if zeros == 0 {
            return Ok(());
        }
        stream.consume(zeros);
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

    /// The bytes of the end block of BGZF.
    const BGZF_END: usize = 28;

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
        let decoded = format.decode(Cursor::new(stream), Path::new("-"));
        decoded?.read_to_end(&mut text)?;
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
            for end in cuts.filter(|end| end + BGZF_END != whole.len()) {
                let error = plain(whole[..end].to_vec()).expect_err("cut");
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {end}");
            }
        }
    }

    #[test]
    fn zero_bytes_may_follow_and_the_end_block_may_be_missing() {
        let endless = |text: &[u8]| {
            let mut whole = bgzf(text);
            whole.truncate(whole.len() - BGZF_END);
            whole
        };
        for encode in [gzip, bgzf, endless] {
            let whole = encode(&text());
            for zeros in [0, 1, 512, 200_000] {
                let mut padded = [&whole[..], &vec![0; zeros]].concat();
                assert!(plain(padded.clone()).expect("padded") == text(), "{zeros}");
                padded.extend(gzip(b"MK"));
                assert!(plain(padded.clone()).expect("joined").ends_with(b"MK"));
                padded.extend(b"\0garbage, twenty bytes");
                assert!(plain(padded).is_err(), "{zeros}");
            }
        }
        assert!(plain([zstd(b"MK"), vec![0; 512]].concat()).is_err());
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
