//! CSV lists of records: `rejects.csv` (records without an embedding, and why) and `renamed.csv` (records with a new id). They
//! are quoted as in RFC 4180, with LF line ends.
//!
//! `fasta-shard` lists records. `gpu-embed` lists rows of shards, and has one more column, `start`: a record may have several
//! rows.

use std::io::{ErrorKind, Read};
use std::path::Path;

use plmkit_contract::{
    ByteDigest, REJECTED_ROWS_HEADER, REJECTS_HEADER, RENAMED_HEADER, Reason, Reject, RejectsList,
};
use plmkit_kit::{LIST_SHOWN, Quoted, one_line};

use serde::Serialize;

use crate::{AtomicFile, Lines, StoreError};

/// Writes a list. Even an empty list has its header line.
pub struct ListWriter {
    writer: csv::Writer<AtomicFile>,
}

impl ListWriter {
    /// Starts a `rejects.csv` of whole records that will be at `path`.
    pub fn create_rejects(path: &Path) -> Result<Self, StoreError> {
        Self::create(path, REJECTS_HEADER.split(','))
    }

    /// Starts a `rejects.csv` of rows, each with its start, that will be at `path`.
    pub fn create_rejected_rows(path: &Path) -> Result<Self, StoreError> {
        Self::create(path, REJECTED_ROWS_HEADER.split(','))
    }

    /// Starts a `renamed.csv` that will be at `path`.
    pub fn create_renames(path: &Path) -> Result<Self, StoreError> {
        Self::create(path, RENAMED_HEADER.split(','))
    }

    fn create<'a>(path: &Path, columns: impl Iterator<Item = &'a str>) -> Result<Self, StoreError> {
        let mut writer = csv::WriterBuilder::new()
            .has_headers(false)
            .from_writer(AtomicFile::create(path)?);
        writer
            .write_record(columns)
            .map_err(|error| StoreError::cannot_write(path)(error.into()))?;
        Ok(Self { writer })
    }

    /// Adds a line. A line with other columns than the list is an error.
    pub fn push(&mut self, line: &impl Serialize) -> Result<(), StoreError> {
        let pushed = self.writer.serialize(line);
        pushed.map_err(|error| StoreError::cannot_write(self.writer.get_ref().path())(error.into()))
    }

    /// Completes the file. Returns its [`ByteDigest`], and the file, which is not published.
    pub fn finish(self) -> Result<(String, AtomicFile), StoreError> {
        let path = self.writer.get_ref().path().to_owned();
        let written = self.writer.into_inner();
        let mut file =
            written.map_err(|error| StoreError::cannot_write(&path)(error.into_error()))?;
        Ok((file.digest()?, file))
    }
}

/// Reads the list of rejected records or rows at `path`.
pub fn read_rejects(path: &Path) -> Result<RejectsList, StoreError> {
    let mut text = Vec::new();
    let unreadable = |error: csv::Error| unreadable(path, error);
    let read = Lines::open(path)?.read_to_end(&mut text);
    read.map_err(|error| unreadable(error.into()))?;
    let mut reader = csv::Reader::from_reader(&text[..]);
    let found = reader.headers().map_err(unreadable)?;
    let of_rows = found.iter().eq(REJECTED_ROWS_HEADER.split(','));
    if !of_rows && !found.iter().eq(REJECTS_HEADER.split(',')) {
        let found = one_line(&found.iter().collect::<Vec<_>>().join(","), LIST_SHOWN);
        let what = format_args!(
            "not a rejects file: expected columns {REJECTS_HEADER} and perhaps start, found {found}"
        );
        return Err(StoreError::malformed(path, what));
    }
    let lines = reader.deserialize().collect::<Result<Vec<Reject>, _>>();
    let lines = lines.map_err(unreadable)?;
    for line in &lines {
        check(line, of_rows).map_err(|what| {
            let (ordinal, id) = (line.ordinal, Quoted(&line.id));
            let what = format_args!("not a rejects file: ordinal {ordinal} {id}: {what}");
            StoreError::malformed(path, what)
        })?;
    }
    Ok(RejectsList {
        lines,
        of_rows,
        digest: ByteDigest::compute(&text).to_string(),
    })
}

/// Checks that a line fits the columns of its list. The error describes what is wrong.
fn check(line: &Reject, of_rows: bool) -> Result<(), String> {
    // A line without a start would reject all rows of its record.
    if of_rows && line.start.is_none() {
        return Err("expected a start, found none".to_owned());
    }
    let reasons = if of_rows {
        Reason::EMBEDDING.as_slice()
    } else {
        Reason::SHARDING.as_slice()
    };
    if reasons.contains(&line.reason) {
        return Ok(());
    }
    let found = line.reason;
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    Err(format!(
        "expected reason {}, found {found}",
        reasons.join(" or ")
    ))
}

fn unreadable(path: &Path, error: csv::Error) -> StoreError {
    let what = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) if source.kind() != ErrorKind::InvalidData => {
            StoreError::cannot_read(path)(source)
        }
        _ => StoreError::malformed(path, format_args!("not a rejects file: {what}")),
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::Reason;

    use super::*;

    type Create = fn(&Path) -> Result<ListWriter, StoreError>;

    fn written(create: Create, rejects: &[Reject]) -> String {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("rejects.csv");
        let mut writer = create(&path).expect("create");
        for reject in rejects {
            writer.push(reject).expect("push");
        }
        let (digest, file) = writer.finish().expect("finish");
        file.finish().expect("publish");
        let file = read_rejects(&path).expect("read");
        assert_eq!((file.lines.as_slice(), file.digest), (rejects, digest));
        std::fs::read_to_string(path).expect("read")
    }

    #[test]
    fn lists_have_a_header_and_quoted_ids() {
        let of_records = written(ListWriter::create_rejects, &[]);
        assert_eq!(of_records, "ordinal,id,length,reason\n");
        let of_rows = written(ListWriter::create_rejected_rows, &[]);
        assert_eq!(of_rows, "ordinal,id,length,reason,start\n");
        let reject = Reject {
            ordinal: 3,
            id: "a,\"b\"".into(),
            length: 0,
            reason: Reason::Empty,
            start: None,
        };
        assert_eq!(
            written(ListWriter::create_rejects, &[reject]),
            "ordinal,id,length,reason\n3,\"a,\"\"b\"\"\",0,empty\n"
        );
    }

    fn row(start: Option<u32>) -> Reject {
        Reject {
            ordinal: 3,
            id: "a".into(),
            length: 2000,
            reason: Reason::NotFinite,
            start,
        }
    }

    #[test]
    fn rows_of_one_record_have_different_starts() {
        let rows = [row(Some(0)), row(Some(766))];
        let expected =
            "ordinal,id,length,reason,start\n3,a,2000,not_finite,0\n3,a,2000,not_finite,766\n";
        assert_eq!(written(ListWriter::create_rejected_rows, &rows), expected);
    }

    #[test]
    fn records_and_rows_are_not_mixed() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("rejects.csv");
        for (create, start) in [
            (ListWriter::create_rejects as Create, Some(0)),
            (ListWriter::create_rejected_rows, None),
        ] {
            let mut writer = create(&path).expect("create");
            assert!(writer.push(&row(start)).is_err(), "{start:?}");
        }
        for (text, message) in [
            (
                "ordinal,id,length,reason,start\n3,a,2000,not_finite,\n",
                "not a rejects file: ordinal 3 'a': expected a start, found none",
            ),
            (
                "ordinal,id,length,reason,start\n3,a,2000,empty,0\n",
                "ordinal 3 'a': expected reason out_of_memory or not_finite or worker_lost, found empty",
            ),
            (
                "ordinal,id,length,reason\n3,a,2000,not_finite\n",
                "expected reason empty or too_short or too_long or invalid_residue or no_id or no_orf or duplicate, found not_finite",
            ),
            (
                "ordinal,id,length,reason,end\n",
                "expected columns ordinal,id,length,reason and perhaps start, found ordinal,id,length,reason,end",
            ),
        ] {
            std::fs::write(&path, text).expect("write");
            let error = read_rejects(&path).expect_err(message).to_string();
            assert!(error.ends_with(message), "{error}");
        }
    }
}
