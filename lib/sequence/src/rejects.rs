//! `rejects.csv`: the records that are in no shard, and why. Quoted as RFC 4180 says, with LF line ends.

use std::path::Path;

use plmkit_contract::Reject;
use plmkit_store::{AtomicFile, Lines, StoreError};

/// `rejects.csv` under construction. It has its header line also where nothing follows.
pub(crate) struct RejectsWriter {
    writer: csv::Writer<AtomicFile>,
}

impl RejectsWriter {
    pub(crate) fn create(path: &Path) -> Result<Self, StoreError> {
        let mut writer = csv::WriterBuilder::new()
            .has_headers(false)
            .from_writer(AtomicFile::create(path)?);
        writer
            .write_record(["ordinal", "id", "length", "reason"])
            .map_err(|error| failed(path, error.into()))?;
        Ok(Self { writer })
    }

    pub(crate) fn push(&mut self, reject: &Reject) -> Result<(), StoreError> {
        let path = self.writer.get_ref().path().to_owned();
        self.writer
            .serialize(reject)
            .map_err(|error| failed(&path, error.into()))
    }

    /// Gives the file its name.
    pub(crate) fn publish(self) -> Result<(), StoreError> {
        let path = self.writer.get_ref().path().to_owned();
        let file = self
            .writer
            .into_inner()
            .map_err(|error| failed(&path, error.into_error()))?;
        file.finish()
    }
}

/// The number of records in the rejects file at `path`, or `None` where it cannot be read.
pub(crate) fn count_rejects(path: &Path) -> Option<u64> {
    let mut reader = csv::Reader::from_reader(Lines::open(path).ok()?);
    let mut count = 0;
    for reject in reader.deserialize::<Reject>() {
        reject.ok()?;
        count += 1;
    }
    Some(count)
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
        assert_eq!(count_rejects(&path), Some(rejects.len() as u64));
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
