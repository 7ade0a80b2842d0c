//! Shards, batches, embeddings and lists of aliases: the checksums detect every change.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use plmkit_contract::{Kind, Stop};
use plmkit_fuzz::{as_file, judged};
use plmkit_store::{
    AliasesReader, BatchesFile, EmbeddingsKeys, EmbeddingsReader, StoreError, read_shard,
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
        let mut reader = EmbeddingsKeys::open(path)?;
        let mut rows = 0;
        while let Some(next) = reader.next_rows()? {
            rows += next.len() as u64;
        }
        Ok(rows)
    };
    let aliases = |path: &Path| -> Result<u64, StoreError> {
        let mut reader = AliasesReader::open(path, Kind::Known)?;
        while reader.next_batch()?.is_some() {}
        Ok(reader.digest().rows())
    };
    let readers: [&dyn Fn(&Path) -> Result<u64, StoreError>; 5] =
        [&shard, &batches, &embeddings, &keys, &aliases];
    let read = readers.map(|read| judged(as_file(bytes, read)));
    // Only the seeds are intact files.
    for rows in read.into_iter().flatten() {
        assert!([0, 4].contains(&rows), "{rows} rows");
    }
});
