//! Shards, batches, embeddings and lists of aliases: the checksums detect every change.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use plmkit_contract::Kind;
use plmkit_kit::Stop;
use plmkit_fuzz::{as_file, judged};
use plmkit_store::{
    RecordListReader, BatchesFile, EmbeddingsFile, EmbeddingsReader, StoreError, read_shard,
};

fuzz_target!(|bytes: &[u8]| {
    let embeddings = |path: &Path| -> Result<u64, StoreError> {
        let mut reader = EmbeddingsReader::open(path)?;
        while reader.next_batch()?.is_some() {}
        Ok(reader.digest().rows())
    };
    let batches = |path: &Path| -> Result<u64, StoreError> {
        let file = BatchesFile::open(path, &Stop::default())?;
        Ok(file.digest().rows())
    };
    let shard = |path: &Path| Ok(read_shard(path)?.digest.rows());
    let keys = |path: &Path| -> Result<u64, StoreError> {
        let file = EmbeddingsFile::open(path)?;
        let mut rows = 0;
        for group in 0..file.groups()?.len() {
            rows += file.keys(group)?.len() as u64;
        }
        Ok(rows)
    };
    let random_access = |path: &Path| -> Result<u64, StoreError> {
        let file = EmbeddingsFile::open(path)?;
        let columns = file.schema().fields().len();
        let mut rows = 0;
        for (group, summary) in file.groups()?.iter().enumerate() {
            file.page_starts(group)?;
            file.may_have(group, ["P1"].into_iter())?;
            rows += file.rows_with(group, |_| true)?.len() as u64;
            file.read(group, &[0..summary.rows], 0..columns)?;
        }
        file.verify(&Stop::default())?;
        Ok(rows)
    };
    let aliases = |path: &Path| -> Result<u64, StoreError> {
        let mut reader = RecordListReader::open(path, Kind::Known)?;
        while reader.next_batch()?.is_some() {}
        Ok(reader.digest().rows())
    };
    let readers: [&dyn Fn(&Path) -> Result<u64, StoreError>; 6] =
        [&shard, &batches, &embeddings, &keys, &random_access, &aliases];
    let read = readers.map(|read| judged(as_file(bytes, read)));
    // Only the seeds are intact files.
    for rows in read.into_iter().flatten() {
        assert!([0, 4].contains(&rows), "{rows} rows");
    }
});
