//! Why asked ids have no rows.

use std::collections::HashSet;

use plmkit_contract::{Kind, MANIFEST_FILE, Stop, alias_rows};

use crate::aliases::open_list;
use crate::listing::read_manifest;
use crate::{DatasetError, OpenedDataset};

impl OpenedDataset {
    /// Adds to an error of ids without rows how many of them are in the lists beside the shards. Other errors are returned as they are; where a list cannot be read, that is the error.
    pub fn explain(&self, mut error: DatasetError, stop: &Stop) -> DatasetError {
        if let DatasetError::Unknown { missing, why, .. } = &mut error {
            match self.why(missing, stop) {
                Ok(more) => why.push_str(&more),
                Err(error) => return error,
            }
        }
        error
    }

    fn why(&self, missing: &[String], stop: &Stop) -> Result<String, DatasetError> {
        let shards = &self.folder.path().join("shards");
        // Only a hint is taken from the lists: a manifest that is not there leaves them as they are.
        let listed = self.listed.as_ref();
        let listed = listed.filter(|_| shards.join(MANIFEST_FILE).exists());
        let manifest = listed.map(|listed| read_manifest(shards, Some(listed)));
        let manifest = manifest.transpose()?.unwrap_or_default();
        let missing: HashSet<&str> = missing.iter().map(String::as_str).collect();
        let mut why = Vec::new();
        for (file, kind, list) in manifest.lists() {
            let path = shards.join(file);
            if kind == Kind::Peptides || !path.exists() {
                continue;
            }
            let mut reader = open_list(&path, kind, list.map(|list| &*list.digest))?;
            let mut count = 0_u64;
            while let Some(batch) = reader.next_batch()? {
                if stop.requested() {
                    return Err(DatasetError::stopped());
                }
                let listed = alias_rows(&batch).filter(|row| missing.contains(row.key.id));
                count += listed.count() as u64;
            }
            let option = if kind == Kind::Known { " --known" } else { "" };
            if count > 0 {
                why.push(format!(
                    "; {count} of them in {file}, because other records have their residues: query-embeddings combine{option} gives them rows"
                ));
            }
        }
        Ok(why.concat())
    }
}
