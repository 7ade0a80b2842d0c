//! Parses FASTA text.

use std::borrow::Cow;
use std::io::BufRead;

use memchr::{memchr, memchr_iter};

use crate::error::invalid_record;
use crate::lines::{Foreign, are_plain, check};
use crate::records::Records;

/// What an input may have. The sizes bound the memory of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of the `>` and the id.
    pub id_bytes: usize,
    /// The most bytes that are kept of a description.
    pub description_bytes: usize,
    /// The most bytes of the sequence lines of a record.
    pub sequence_bytes: usize,
    /// The most bytes of blank lines before the first record.
    pub blank_bytes: usize,
    /// Whether blanks may be anywhere between residues.
    pub drop_blanks: bool,
    /// Whether a header may be one of PIR, with a title in the next line.
    pub pir: bool,
}

/// An id of 1 MiB; a description of 64 KiB, because thousands are in memory at once; a sequence of 16 MiB, several hundred times the
/// longest known protein (titin, 35,000 residues).
impl Default for Limits {
    fn default() -> Self {
        Self {
            id_bytes: 1 << 20,
            description_bytes: 1 << 16,
            sequence_bytes: 1 << 24,
            blank_bytes: 1 << 24,
            drop_blanks: false,
            pir: false,
        }
    }
}

impl Limits {
    /// Those of proteins, or of contigs: a sequence of 1 GiB. The chromosomes of wheat have up to 0.9 GB.
    pub fn of(contigs: bool, drop_blanks: bool, pir: bool) -> Self {
        Self {
            sequence_bytes: 1 << if contigs { 30 } else { 24 },
            drop_blanks,
            pir,
            ..Self::default()
        }
    }
}

/// Text that starts with a header line and ends where a record ends.
pub(crate) struct FastaBlock {
    pub(crate) text: Vec<u8>,
    pub(crate) limits: Limits,
    /// The number of its first line in the input.
    pub(crate) line: u64,
    /// Whether the last record has more text, and is longer than the limits.
    pub(crate) cut: bool,
}

/// The records of a block.
pub(crate) struct Parsed {
    pub(crate) records: Records,
    /// How many descriptions had bytes that were not UTF-8, which U+FFFD replaces; how many were cut, because they are longer than the
    /// limit; and how many blanks divide residues.
    pub(crate) changes: [(&'static str, u64); 3],
    /// Why the record after these is invalid.
    pub(crate) error: Option<String>,
}

impl FastaBlock {
    /// Parses the records.
    pub(crate) fn parse(self) -> Parsed {
        let mut parsed = Parsed {
            records: Records::with_capacity(self.text.len()),
            changes: ["descriptions_recoded", "descriptions_cut", "blanks_dropped"]
                .map(|name| (name, 0)),
            error: None,
        };
        let mut at = 0;
        while at < self.text.len() && parsed.error.is_none() {
            match self.parse_record(at, &mut parsed) {
                Ok(next) => at = next,
                Err((at, problem)) => {
                    let line = self.line + newlines(&self.text[..at]);
                    parsed.error = Some(format!("{problem} (line {line})"));
                }
            }
        }
        parsed
    }

    /// Parses the record that starts at `start`. Returns where it ends, or where it is invalid.
    fn parse_record(&self, start: usize, parsed: &mut Parsed) -> Result<usize, (usize, String)> {
        let mut body = self.line_end(start);
        if self.limits.pir && is_of_pir(&self.text[start..]) {
            // The title is the rest of the header.
            body = self.line_end(body);
        }
        let header = header(&self.text[start..body], &self.limits);
        let (id, description, cut) = header.map_err(|error| (start, error))?;
        let recoded = matches!(description, Some(Cow::Owned(_)));
        parsed.records.push_header(id, description.as_deref());
        let sequence = self.parse_sequence(body, &mut parsed.records);
        let (next, blanks) = sequence.map_err(|(at, problem)| {
            parsed.records.pop();
            (at, invalid_record(Some(id), problem))
        })?;
        let counts = [u64::from(recoded), u64::from(cut), blanks];
        for ((_, total), count) in parsed.changes.iter_mut().zip(counts) {
            *total += count;
        }
        Ok(next)
    }

    /// Adds the sequence lines that start at `start` to the last record. Returns where they end, and how many blanks divide residues.
    fn parse_sequence(&self, start: usize, records: &mut Records) -> Result<(usize, u64), Foreign> {
        let limit = self.limits.sequence_bytes;
        let mut reader = noodles_fasta::io::Reader::new(&self.text[start..]);
        let mut lines = reader.sequence_reader();
        let (mut bytes, mut blanks) = (0, 0);
        // Slices never fail.
        while bytes <= limit
            && let Ok(line @ [_, ..]) = lines.fill_buf()
        {
            records.extend_last(line);
            let length = line.len();
            bytes += length;
            lines.consume(length);
        }
        let next = self.text.len() - reader.get_ref().len();
        // The reader takes a carriage return for a line end, and what follows it for a header.
        let is_inside = next < self.text.len() && self.text[next - 1] != b'\n';
        if is_inside || !are_plain(records.get(records.len() - 1).sequence) {
            let lines = &self.text[start..next + usize::from(is_inside)];
            let checked = check(lines, self.limits.drop_blanks);
            blanks = checked.map_err(|(at, problem)| (start + at, problem))?;
        }
        if bytes > limit || self.cut && next == self.text.len() {
            let problem = format!("the sequence is too long: expected at most {limit} bytes");
            return Err((start, problem));
        }
        Ok((next, blanks))
    }

    /// Returns where the line that starts at `start` ends, with its end.
    fn line_end(&self, start: usize) -> usize {
        let end = memchr(b'\n', &self.text[start..]);
        end.map_or(self.text.len(), |end| start + end + 1)
    }
}

/// Returns a line without its end.
fn without_end(mut line: &[u8]) -> &[u8] {
    while let [rest @ .., b'\n' | b'\r'] = line {
        line = rest;
    }
    line
}

/// Counts the line ends of a text.
pub(crate) fn newlines(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

/// Whether a header is one of PIR: it begins with the code of a type.
fn is_of_pir(header: &[u8]) -> bool {
    let mut codes = b"P1;F1;DL;DC;RL;RC;N1;N3;XX;".chunks_exact(3);
    header.get(3) == Some(&b';') && codes.any(|code| header[1..].starts_with(code))
}

/// Parses a header line. Returns the id, the description, and whether it was cut: NCBI's nr joins the headers of equal proteins to
/// lines of megabytes.
fn header<'a>(
    line: &'a [u8],
    limits: &Limits,
) -> Result<(&'a str, Option<Cow<'a, str>>, bool), String> {
    let header = without_end(line);
    let end = header.iter().position(u8::is_ascii_whitespace);
    let (name, description) = header.split_at(end.unwrap_or(header.len()));
    let limit = limits.id_bytes;
    if name.len() > limit {
        let problem =
            format!("the header line is too long: expected at most {limit} bytes before a blank");
        return Err(invalid_record(None, problem));
    }
    let name = name.strip_prefix(b">").unwrap_or(name);
    let Ok(id) = std::str::from_utf8(name) else {
        let id = String::from_utf8_lossy(name);
        let problem = "expected an id in UTF-8, found other bytes";
        return Err(invalid_record(Some(&id), problem));
    };
    let mut lines = description.splitn(2, |&byte| byte == b'\n');
    let [rest, title] = [(); 2].map(|()| lines.next().unwrap_or_default());
    // Before a title of PIR.
    let description = description.strip_prefix(b"\r\n").unwrap_or(description);
    let control = |byte: u8| byte.is_ascii_control() && !matches!(byte, 1 | b'\t' | b'\n' | b'\r');
    let is_pir = is_of_pir(header);
    let problem = if memchr(b'\r', description).is_some() {
        // Residues may follow it, and would be lost.
        "expected lines that end in LF or CRLF, found a carriage return inside the header"
    } else if header.iter().fold(false, |any, &b| any | control(b)) {
        // Zeros or compressed bytes may be in the place of records. NCBI's nr joins headers by the byte 1.
        "expected a header without control bytes"
    } else if is_pir && !limits.pir {
        "expected FASTA, found a header of PIR; --pir reads it, and the next line as its title"
    } else if is_pir && !rest.trim_ascii().is_empty() {
        "expected an id alone in a header of PIR: the next line is its title"
    } else if is_pir && title.starts_with(b">") {
        "expected the title of PIR in the next line, found a header"
    } else {
        ""
    };
    if !problem.is_empty() {
        return Err(invalid_record(Some(id), problem));
    }
    let id = &id[if is_pir { 3 } else { 0 }..];
    let limit = limits.description_bytes;
    let cut = description.len() > limit;
    let description = description[..character_end(description, limit)].trim_ascii();
    // Faster than the lossy conversion alone.
    let text = str::from_utf8(description).map(Cow::Borrowed);
    let text = text.unwrap_or_else(|_| String::from_utf8_lossy(description));
    let description = (!description.is_empty()).then_some(text);
    Ok((id, description, cut))
}

/// Returns where the last character of UTF-8 ends that is whole in the first `limit` bytes of `text`.
fn character_end(text: &[u8], limit: usize) -> usize {
    let limit = limit.min(text.len());
    let is_end = |at: &usize| text.get(*at).is_none_or(|next| next & 0xc0 != 0x80);
    let mut ends = (limit.saturating_sub(3)..=limit).rev();
    ends.find(is_end).unwrap_or(limit)
}
