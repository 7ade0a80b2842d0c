//! Why asked ids have no rows.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use plmkit_contract::{ALIASES_FILE, AliasColumns, KNOWN_FILE, Kind, Quoted, Stop};

use crate::aliases::open_list;
use crate::listing::read_manifest;
use crate::{DatasetError, Merge, OpenedDataset, Parts};

impl OpenedDataset {
    /// Adds to an error of ids without rows how many of them are in the lists beside the shards, and what has the residues of the
    /// first. Other errors are returned as they are; where a list cannot be read, that is the error.
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
        let lists = [ALIASES_FILE, KNOWN_FILE].map(|name| shards.join(name));
        if !lists.iter().any(|list| list.exists()) {
            return Ok(String::new());
        }
        // Only a hint is taken from the lists: a manifest that is not there leaves them as they are.
        let listed = self.listed.as_ref();
        let listed = listed.filter(|_| shards.join("manifest.json").exists());
        let manifest = listed.map(|listed| read_manifest(shards, listed));
        let manifest = manifest.transpose()?;
        let known = manifest.as_ref().and_then(|found| found.known.as_ref());
        let aliases = manifest.as_ref().and_then(|found| found.aliases.as_ref());
        let missing: HashSet<&str> = missing.iter().map(String::as_str).collect();
        let mut why = Vec::new();
        for (path, kind, list) in [
            (&lists[0], Kind::Aliases, aliases),
            (&lists[1], Kind::Known, known.map(|known| &known.list)),
        ] {
            if !path.exists() {
                continue;
            }
            let mut reader = open_list(path, kind, list.map(|list| &*list.digest))?;
            let (mut count, mut first) = (0_u64, None);
            while let Some(batch) = reader.next_batch()? {
                if stop.requested() {
                    return Err(DatasetError::stopped());
                }
                let listed = AliasColumns::new(&batch);
                for row in listed.rows().filter(|row| missing.contains(row.id)) {
                    count += 1;
                    first.get_or_insert_with(|| (row.id.to_owned(), row.representative));
                }
            }
            let Some((id, representative)) = first else {
                continue;
            };
            let (other, option) = match kind {
                Kind::Known => ("a record of an earlier dataset".to_owned(), " --known"),
                _ => (name(representative, &self.parts, stop)?, ""),
            };
            let file = path.file_name().unwrap_or_default().display();
            why.push(format!(
                "; {count} of them in {file}, where {} has the residues of {other}: query-embeddings combine{option} gives them rows",
                Quoted(&id)
            ));
        }
        Ok(why.concat())
    }
}

/// The id of the row with this ordinal, or the ordinal of a row that was rejected.
fn name(ordinal: u64, parts: &Parts, stop: &Stop) -> Result<String, DatasetError> {
    let ordinals = [ordinal];
    let mut merge = Merge::new(parts, [], None, stop).of_ordinals(&ordinals);
    let rows = merge.next_rows()?;
    let id = rows.as_ref().and_then(|rows| {
        let mut ids = rows["id"].as_string::<i32>().iter().flatten();
        ids.next()
    });
    Ok(id.map_or_else(|| format!("ordinal {ordinal}"), |id| Quoted(id).to_string()))
}
