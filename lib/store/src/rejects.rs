//! `rejects.csv`: the records that are not embedded, and why. Quoted as RFC 4180 says, with LF line ends.

use std::io::ErrorKind;
use std::path::Path;

use plmkit_contract::Reject;

use crate::{AtomicFile, Lines, StoreError};

const COLUMNS: [&str; 4] = ["ordinal", "id", "length", "reason"];

/// `rejects.csv` under construction. It has its header line also where nothing follows.
pub struct RejectsWriter {
    writer: csv::Writer<AtomicFile>,
}

impl RejectsWriter {
    /// Starts a file that will be at `path`.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let mut writer = csv::WriterBuilder::new()
            .has_headers(false)
            .from_writer(AtomicFile::create(path)?);
        writer
            .write_record(COLUMNS)
            .map_err(|error| failed(path, error.into()))?;
        Ok(Self { writer })
    }

    /// Adds a record.
    pub fn push(&mut self, reject: &Reject) -> Result<(), StoreError> {
        let path = self.writer.get_ref().path().to_owned();
        self.writer
            .serialize(reject)
            .map_err(|error| failed(&path, error.into()))
    }

    /// Gives the file its name.
    pub fn publish(self) -> Result<(), StoreError> {
        let path = self.writer.get_ref().path().to_owned();
        let file = self
            .writer
            .into_inner()
            .map_err(|error| failed(&path, error.into_error()))?;
        file.finish()
    }
}

/// All rows of the rejects file at `path`.
pub fn read_rejects(path: &Path) -> Result<Vec<Reject>, StoreError> {
    let mut reader = csv::Reader::from_reader(Lines::open(path)?);
    let unreadable = |error: csv::Error| unreadable(path, error);
    let found = reader.headers().map_err(unreadable)?;
    if *found != COLUMNS[..] {
        let found = found.iter().collect::<Vec<_>>().join(",");
        let expected = COLUMNS.join(",");
        return Err(StoreError::malformed(
            path,
            format_args!("not a rejects file: expected columns {expected}, found {found}"),
        ));
    }
    let rows = reader.deserialize().collect::<Result<_, _>>();
    rows.map_err(unreadable)
}

fn unreadable(path: &Path, error: csv::Error) -> StoreError {
    let what = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) if source.kind() != ErrorKind::InvalidData => StoreError::Read {
            path: path.to_owned(),
            source,
        },
        _ => StoreError::malformed(path, format_args!("not a rejects file: {what}")),
    }
}

fn failed(path: &Path, source: std::io::Error) -> StoreError {
    StoreError::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::Reason;

    use super::*;

    fn written(rejects: &[Reject]) -> String {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("rejects.csv");
        let mut writer = RejectsWriter::create(&path).expect("create");
        for reject in rejects {
            writer.push(reject).expect("push");
        }
        writer.publish().expect("publish");
        assert_eq!(read_rejects(&path).expect("read"), rejects);
        std::fs::read_to_string(path).expect("read")
    }

    #[test]
    fn the_header_is_always_there() {
        assert_eq!(written(&[]), "ordinal,id,length,reason\n");
    }

    #[test]
    fn ids_are_quoted_where_they_must_be() {
        let reject = Reject {
            ordinal: 3,
            id: "a,\"b\"".into(),
            length: 0,
            reason: Reason::Empty,
        };
        assert_eq!(
            written(&[reject]),
            "ordinal,id,length,reason\n3,\"a,\"\"b\"\"\",0,empty\n"
        );
    }
}
