//! The residues that variants change, and their log-probabilities.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use arrow_array::RecordBatch;
use plmkit_contract::{AMINO_ACIDS, Column, KeyColumns, Kind, Reason};
use plmkit_kit::{Quoted, Stop};
use plmkit_store::StoreError;

use super::Table;
use super::variant::{NO_AMINO_ACID, Unscored, Variant};
use crate::folder::SHARDS;
use crate::{AskedIds, Dataset, DatasetError, Merge, Vectors};

/// The log-probabilities of the residues that variants change, by id and position.
#[derive(Debug, Default)]
pub struct Sites {
    proteins: HashMap<String, Protein>,
    /// The ids of proteins that have the residues of other records, by the ids of these.
    representatives: HashMap<String, String>,
}

/// The positions of a protein.
#[derive(Debug, Default)]
struct Protein {
    sites: BTreeMap<u32, Site>,
    /// Its residues, those that were not embedded included; 0 if there is no such protein.
    length: u32,
    /// The number of its sample, and its ordinal there.
    key: Option<(usize, u64)>,
    /// Why it was not embedded, if that is known.
    rejected: Option<Reason>,
}

/// A position of a protein.
#[derive(Clone, Copy, Debug, Default)]
struct Site {
    /// Whether a substitution is to be scored, not only compared with the protein.
    is_scored: bool,
    /// Its residue, if the protein has it.
    residue: Option<u8>,
    /// The log-probabilities of [`AMINO_ACIDS`], if the residue was embedded and has some.
    log_probs: Option<[f32; AMINO_ACIDS.len()]>,
    /// Of several windows, how far the residue is from the end of that with these log-probabilities.
    depth: u32,
}

impl Sites {
    /// Asks for the positions that a table names.
    pub fn ask(&mut self, table: &Table) {
        for (line, variant, _) in &table.lines {
            let protein = self.proteins.entry(line.id.clone()).or_default();
            if let Ok(variant) = variant {
                for &(wild_type, position, mutant) in &variant.sites {
                    let site = protein.sites.entry(position).or_default();
                    site.is_scored |= variant.reason.is_none() && wild_type != mutant;
                }
            }
        }
    }

    /// Sees residues of a protein, from a position on.
    pub fn see(&mut self, id: &str, length: u32, first: u32, residues: &[u8]) {
        let Some(protein) = self.proteins.get_mut(id) else {
            return;
        };
        protein.length = length;
        let end = first + residues.len() as u32;
        for (position, site) in protein.sites.range_mut(first..end) {
            site.residue = Some(residues[(position - first) as usize]);
        }
    }

    /// Returns the positions of a protein whose log-probabilities were asked for, if the protein has them.
    pub fn positions(&self, id: &str) -> Vec<u32> {
        let sites = self.proteins.get(id).map(|protein| &protein.sites);
        let seen = sites.into_iter().flatten();
        let seen = seen.filter(|(_, site)| site.is_scored && site.residue.is_some());
        seen.map(|(position, _)| *position).collect()
    }

    /// Notes why a protein, or a window of it, was not embedded.
    pub fn reject(&mut self, id: &str, reason: Reason) {
        if let Some(protein) = self.proteins.get_mut(id) {
            protein.rejected = Some(reason);
        }
    }

    /// Reads what was asked for: residues from the shards, log-probabilities from the embeddings.
    ///
    /// # Errors
    /// If the dataset has no scores or no shards, or if an id is that of several records.
    pub fn read(&mut self, dataset: &Dataset, stop: &Stop) -> Result<(), DatasetError> {
        if !dataset.layout().columns.contains(&Column::LogProbs) {
            let what = "has no column log_probs: expected embeddings of gpu-embed --scores";
            return Err(DatasetError::content(&dataset.parts[0].path, what));
        }
        let places = dataset.places(&[Column::LogProbs.to_string()])?;
        for (sample, dataset) in dataset.samples().iter().enumerate() {
            self.read_residues(sample, dataset, stop)?;
        }
        let mut ids = AskedIds::default();
        self.proteins.keys().for_each(|id| ids.add(id));
        let mut merge = Merge::new(&dataset.parts, places, stop).of_ids(&ids);
        while let Some(rows) = merge.next_rows()? {
            self.add_rows(&rows);
        }
        Ok(())
    }

    /// Asks for the positions of records in the protein that has their residues. The error is the id of one that another has, too.
    fn ask_representative(&mut self, id: &str, copies: Vec<String>) -> Result<(), String> {
        for copy in copies.into_iter().filter(|copy| copy != id) {
            let asked = self.proteins.remove(&copy).unwrap_or_default();
            let protein = self.proteins.entry(id.to_owned()).or_default();
            protein.sites.extend(asked.sites);
            let other = self.representatives.insert(copy.clone(), id.to_owned());
            if asked.key.is_some() || other.is_some_and(|other| other != id) {
                return Err(copy);
            }
        }
        Ok(())
    }

    fn read_residues(
        &mut self,
        sample: usize,
        dataset: &Dataset,
        stop: &Stop,
    ) -> Result<(), DatasetError> {
        // The asked records that fasta-shard left out because another record has their residues, by the ordinal of that one.
        let mut copies: HashMap<u64, Vec<String>> = HashMap::new();
        dataset.each_record(Kind::Aliases, stop, |row| {
            if self.proteins.contains_key(row.key.id) {
                let copies = copies.entry(row.representative).or_default();
                copies.push(row.key.id.to_owned());
            }
        })?;
        let several = |path: &Path, id: &str| {
            let what = format!("{} is the id of several records: expected one", Quoted(id));
            DatasetError::content(path, what)
        };
        for listed in &dataset.manifest()?.shards {
            StoreError::check(stop)?;
            let path = dataset.path.join(SHARDS).join(&listed.file);
            let shard = dataset.read_shard(listed)?;
            for row in shard.rows().iter() {
                if let Some(copies) = copies.remove(&row.key.ordinal) {
                    let asked = self.ask_representative(row.key.id, copies);
                    asked.map_err(|id| several(&path, &id))?;
                }
                if self.representatives.contains_key(row.key.id) {
                    return Err(several(&path, row.key.id));
                }
                let Some(protein) = self.proteins.get_mut(row.key.id) else {
                    continue;
                };
                let key = (sample, row.key.ordinal);
                if *protein.key.get_or_insert(key) != key {
                    return Err(several(&path, row.key.id));
                }
                let (length, first) = (row.key.length, row.key.start + 1);
                self.see(row.key.id, length, first, row.sequence.as_bytes());
            }
        }
        Ok(())
    }

    fn add_rows(&mut self, rows: &RecordBatch) {
        let lists = Vectors::new(&rows[Column::LogProbs.to_string().as_str()]);
        for (place, key) in KeyColumns::new(rows).rows().enumerate() {
            let Some(Protein { sites, .. }) = self.proteins.get_mut(key.id) else {
                continue;
            };
            let (residues, _) = lists.row(place).as_chunks();
            let (first, count) = (key.start + 1, residues.len() as u32);
            for (position, site) in sites.range_mut(first..first + count) {
                let at = position - first;
                // The window in whose middle the residue lies knows most of what is around it.
                let depth = (at + 1).min(count - at);
                let log_probs = residues[at as usize];
                // Those of a residue that was not masked are no numbers.
                if depth > site.depth && !log_probs[0].is_nan() {
                    site.depth = depth;
                    site.log_probs = Some(log_probs);
                }
            }
        }
    }

    /// Returns the score of a variant, once residues were seen and log-probabilities read.
    pub fn score(&self, id: &str, variant: &Variant) -> Result<f64, Unscored> {
        let named = self.representatives.get(id).map_or(id, String::as_str);
        let protein = self.proteins.get(named).filter(|found| found.length > 0);
        let unknown = || Unscored::Wrong(format!("no protein {}", Quoted(id)));
        let protein = protein.ok_or_else(unknown)?;
        let Protein { sites, length, .. } = protein;
        let lost = match protein.rejected {
            Some(reason) => format!("not embedded: {reason}"),
            None => "not embedded or not masked".to_owned(),
        };
        let mut sum = Ok(0.0);
        for &(wild_type, position, mutant) in &variant.sites {
            let expected = char::from(wild_type);
            let expected = format!("expected {expected} at position {position}, found");
            if position > *length {
                let what = format!("{expected} a protein of {length} residues");
                return Err(Unscored::Wrong(what));
            }
            let site = sites[&position];
            if let Some(residue) = site.residue.filter(|residue| *residue != wild_type) {
                let what = format!("{expected} {}", char::from(residue));
                return Err(Unscored::Wrong(what));
            }
            if mutant == wild_type || variant.reason.is_some() {
                continue;
            }
            let place = |letter| AMINO_ACIDS.iter().position(|&other| other == letter);
            let ratio = match (place(wild_type).zip(place(mutant)), site.log_probs) {
                (None, _) => Err(NO_AMINO_ACID),
                (_, None) => Err(&*lost),
                (Some((own, mutant)), Some(of)) => Ok(f64::from(of[mutant]) - f64::from(of[own])),
            };
            let ratio = ratio.map_err(|why| Unscored::Other(why.to_owned()));
            sum = sum.and_then(|sum| Ok(sum + ratio?));
        }
        let reason = variant.reason.clone().map(Unscored::Other);
        reason.map_or(sum, Err)
    }
}
