//! Ids that are asked for.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use plmkit_contract::{ALIASES_FILE, KNOWN_FILE, Kind, ShortIds};
use plmkit_kit::{Exit, Fault, Quoted, Stop};

use crate::{Dataset, DatasetError, Merge};

/// The most ids that are looked up in the filters of row groups: of more, one is in nearly every row group, or seems to be.
const FEW: usize = 200;

/// What stands for several samples.
const SEVERAL: u64 = u64::MAX;

/// The missing ids that a message names.
const SHOWN: usize = 5;

/// Ids of proteins, each once, and whether a row of it was found.
#[derive(Debug, Default)]
pub struct AskedIds {
    /// For each the number of the sample that has it and 1, or [`SEVERAL`]; 0 before it is found.
    ids: HashMap<String, AtomicU64>,
    /// The ids in the order in which they were asked.
    order: Vec<String>,
    /// Whether the dataset may lack some.
    pub allow_missing: bool,
}

impl AskedIds {
    /// Adds an id.
    pub fn add(&mut self, id: &str) {
        if !self.ids.contains_key(id) {
            self.ids.insert(id.to_owned(), AtomicU64::new(0));
            self.order.push(id.to_owned());
        }
    }

    /// Returns the ids in the order in which they were asked.
    pub fn in_order(&self) -> &[String] {
        &self.order
    }

    /// Whether an id is asked, of which there is a row in a sample, which the number tells from others.
    pub(crate) fn find(&self, id: &str, sample: u64) -> bool {
        let asked = self.ids.get(id);
        asked.is_some_and(|found| {
            let before = found.swap(sample + 1, Ordering::Relaxed);
            if before != 0 && before != sample + 1 {
                found.store(SEVERAL, Ordering::Relaxed);
            }
            true
        })
    }

    /// Iterates over the ids, if they are few enough to look each up.
    pub(crate) fn few(&self) -> Option<impl Iterator<Item = &str>> {
        (self.order.len() <= FEW).then(|| self.order.iter().map(String::as_str))
    }

    /// Returns the ids of which several samples have rows.
    pub fn in_several(&self) -> Vec<&String> {
        self.with(SEVERAL).collect()
    }

    fn with(&self, sample: u64) -> impl Iterator<Item = &String> {
        let ids = self.order.iter();
        ids.filter(move |id| self.ids[*id].load(Ordering::Relaxed) == sample)
    }

    /// Returns the ids, none found yet, with that of its record for each that is short for it: `sp|P12345|NAME_HUMAN` for `P12345`.
    ///
    /// # Errors
    /// If an id is short for several.
    pub fn resolve(&self, dataset: &Dataset, stop: &Stop) -> Result<Self, DatasetError> {
        let named = self.named(dataset, stop)?;
        let mut ids = Self {
            allow_missing: self.allow_missing,
            ..Self::default()
        };
        for id in &self.order {
            let found = named.resolve(id);
            let found = found.map_err(|what| DatasetError::content(&dataset.path, what))?;
            ids.add(found.unwrap_or(id));
        }
        Ok(ids)
    }

    /// Finds what the ids name. Only if some are no ids of rows, all ids are read.
    pub fn named(&self, dataset: &Dataset, stop: &Stop) -> Result<ShortIds, DatasetError> {
        let keys = || Merge::new(&dataset.parts, [], stop);
        let mut exact = keys().of_ids(self);
        while exact.next_rows()?.is_some() {}
        // What has a bar is no short id.
        let mut named = ShortIds::new(self.in_order().iter().map(String::as_str));
        let left: BTreeSet<&String> = self.with(0).collect();
        let found = self.in_order().iter().filter(|id| !left.contains(id));
        found.for_each(|id| named.see(id));
        if left.iter().all(|id| id.contains('|')) {
            return Ok(named);
        }
        let mut keys = keys();
        while let Some(rows) = keys.next_rows()? {
            let ids = rows["id"].as_string::<i32>().iter();
            ids.flatten().for_each(|id| named.see(id));
        }
        for kind in [Kind::Aliases, Kind::Known] {
            dataset.each_record(kind, stop, |row| named.see(row.key.id))?;
        }
        Ok(named)
    }
}

impl Dataset {
    /// Checks that all `ids` were found, or that those without a row may be missing. The error says how many of these are in the lists
    /// beside the shards.
    pub fn check_found(&self, ids: &AskedIds, stop: &Stop) -> Result<(), DatasetError> {
        let missing: Vec<&String> = ids.with(0).collect();
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
        let is_missing = |id: &str| {
            let asked = ids.ids.get(id);
            asked.is_some_and(|found| found.load(Ordering::Relaxed) == 0)
        };
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
        Err(Fault::new(Exit::Negative, what).into())
    }
}
