//! Ids that are asked for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use plmkit_contract::{ALIASES_FILE, Exit, KNOWN_FILE, Kind, Quoted, Stop};

use crate::{Dataset, DatasetError};

/// The most ids that are looked up in the filters of row groups: of more, one is in nearly every row group, or seems to be.
const FEW: usize = 200;

/// The missing ids that a message names.
const SHOWN: usize = 5;

/// Ids of proteins, each once, and whether a row of it was found.
#[derive(Debug, Default)]
pub struct AskedIds {
    ids: HashMap<String, AtomicBool>,
    /// The ids in the order in which they were asked.
    order: Vec<String>,
    /// Whether the dataset may lack some.
    pub allow_missing: bool,
}

impl AskedIds {
    /// Adds an id.
    pub fn add(&mut self, id: &str) {
        if !self.ids.contains_key(id) {
            self.ids.insert(id.to_owned(), AtomicBool::new(false));
            self.order.push(id.to_owned());
        }
    }

    /// Returns the ids in the order in which they were asked.
    pub fn in_order(&self) -> &[String] {
        &self.order
    }

    /// Whether an id is asked, of which there is a row.
    pub(crate) fn find(&self, id: &str) -> bool {
        let asked = self.ids.get(id);
        asked.is_some_and(|found| {
            found.store(true, Ordering::Relaxed);
            true
        })
    }

    /// Iterates over the ids, if they are few enough to look each up.
    pub(crate) fn few(&self) -> Option<impl Iterator<Item = &str>> {
        (self.order.len() <= FEW).then(|| self.order.iter().map(String::as_str))
    }
}

impl Dataset {
    /// Checks that all `ids` were found, or that those without a row may be missing. The error says how many of these are in the lists
    /// beside the shards.
    pub fn check_found(&self, ids: &AskedIds, stop: &Stop) -> Result<(), DatasetError> {
        let is_missing = |id: &str| {
            ids.ids
                .get(id)
                .is_some_and(|found| !found.load(Ordering::Relaxed))
        };
        let missing: Vec<&String> = ids.order.iter().filter(|id| is_missing(id)).collect();
        // They are of no protein: of these, no one wants to leave out those that are missing.
        let headers = missing.iter().any(|id| id.starts_with('>'));
        if !headers && (ids.allow_missing || missing.is_empty()) {
            return Ok(());
        }
        let first = missing.iter().take(SHOWN).map(|id| Quoted(id).to_string());
        let mut what = format!(
            "{} of {} ids are not in the dataset: {}",
            missing.len(),
            ids.order.len(),
            first.collect::<Vec<_>>().join(", ")
        );
        if missing.len() > SHOWN {
            what += ", …";
        }
        if headers {
            what += "; --fasta takes the ids of a FASTA file";
        }
        let lists = [
            (Kind::Aliases, ALIASES_FILE, ""),
            (Kind::Known, KNOWN_FILE, " --known"),
        ];
        for (kind, file, option) in lists {
            let mut count = 0_u64;
            self.each_record(kind, stop, |row| count += u64::from(is_missing(row.key.id)))?;
            if count > 0 {
                let why = format!(
                    "; {count} of them in {file}, because other records have their residues: query-embeddings combine{option} gives them rows"
                );
                what += &why;
            }
        }
        Err(DatasetError::Unfit(Exit::Negative, what))
    }
}
