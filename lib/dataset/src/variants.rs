//! Scores of variants: log-ratios of mutant and wild type, summed over the substitutions.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::str::FromStr;

use arrow_array::RecordBatch;
use plmkit_contract::{AMINO_ACIDS, Column, KeyColumns, Kind, Quoted, Stop};
use plmkit_store::StoreError;

use crate::folder::SHARDS;
use crate::{AskedIds, Dataset, DatasetError, Merge, Vectors};

/// Substitutions in one protein, at different positions: the residue of the protein, its place from 1, and the residue in its place,
/// one of [`AMINO_ACIDS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant(Vec<(u8, u32, u8)>);

impl FromStr for Variant {
    type Err = &'static str;

    /// Reads `A123V`, or several joined by `:`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut substitutions: Vec<(u8, u32, u8)> = Vec::new();
        for part in text.split(':') {
            let substitution = parse(part).ok_or(
                "expected a residue, its position from 1 and one of the twenty amino acids, such as A123V or A123V:K5R",
            )?;
            if substitutions.iter().any(|other| other.1 == substitution.1) {
                return Err("expected one substitution at a position");
            }
            substitutions.push(substitution);
        }
        Ok(Self(substitutions))
    }
}

fn parse(text: &str) -> Option<(u8, u32, u8)> {
    let (&wild_type, rest) = text.as_bytes().split_first()?;
    let (&mutant, digits) = rest.split_last()?;
    let are_digits = digits.iter().all(u8::is_ascii_digit);
    let position: u32 = str::from_utf8(digits).ok()?.parse().ok()?;
    (wild_type.is_ascii_uppercase() && are_digits && position > 0)
        .then_some(())
        .filter(|()| AMINO_ACIDS.contains(&mutant))?;
    Some((wild_type, position, mutant))
}

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
    /// Its residues, those that were not embedded included; 0 if the shards lack it.
    length: u32,
    /// The number of its sample, and its ordinal there.
    key: Option<(usize, u64)>,
}

/// A position of a protein.
#[derive(Clone, Copy, Debug, Default)]
struct Site {
    /// Its residue, if the protein has it.
    residue: Option<u8>,
    /// The log-probabilities of [`AMINO_ACIDS`], if the residue was embedded and has some.
    log_probs: Option<[f32; AMINO_ACIDS.len()]>,
    /// Of several windows, how far the residue is from the end of that with these log-probabilities.
    depth: u32,
}

impl Sites {
    /// Asks for the positions of a variant.
    pub fn ask(&mut self, id: &str, variant: &Variant) {
        let protein = self.proteins.entry(id.to_owned()).or_default();
        for &(_, position, _) in &variant.0 {
            protein.sites.entry(position).or_default();
        }
    }

    /// Reads what was asked for: residues from the shards, log-probabilities from the embeddings.
    ///
    /// # Errors
    /// If the dataset has no scores or no shards, or if an id is not in it.
    pub fn read(&mut self, dataset: &Dataset, stop: &Stop) -> Result<(), DatasetError> {
        if !dataset.layout().columns.contains(&Column::LogProbs) {
            let what = "has no column log_probs: expected embeddings of gpu-embed --scores";
            return Err(DatasetError::content(&dataset.parts[0].path, what));
        }
        let places = dataset.places(&[Column::LogProbs.to_string()])?;
        let mut ids = AskedIds::default();
        self.proteins.keys().for_each(|id| ids.add(id));
        let named = ids.named(dataset, stop)?;
        let content = |what| DatasetError::content(&dataset.path, what);
        for short in ids.in_order() {
            if let Some(id) = named.resolve(short).map_err(content)? {
                // The error is the id of two records, of which this one has no row yet.
                let _ = self.ask_representative(id, vec![short.clone()]);
            }
        }
        for (sample, dataset) in dataset.samples().iter().enumerate() {
            self.read_residues((sample, dataset), stop)?;
        }
        ids = AskedIds::default();
        self.proteins.keys().for_each(|id| ids.add(id));
        let mut merge = Merge::new(&dataset.parts, places, stop).of_ids(&ids);
        while let Some(rows) = merge.next_rows()? {
            self.add_rows(&rows);
        }
        dataset.check_found(&ids, stop)
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
        (sample, dataset): (usize, &Dataset),
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
                let Protein { sites, length, .. } = protein;
                let key = (sample, row.key.ordinal);
                if *protein.key.get_or_insert(key) != key {
                    return Err(several(&path, row.key.id));
                }
                *length = row.key.length;
                let residues = row.sequence.as_bytes();
                let first = row.key.start + 1;
                for (position, site) in sites.range_mut(first..first + residues.len() as u32) {
                    site.residue = Some(residues[(position - first) as usize]);
                }
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

    /// Returns the score of a variant; `None` if a residue of it was not scored, or is none of the twenty. The error says what
    /// the protein has at its position.
    pub fn score(&self, id: &str, variant: &Variant) -> Result<Option<f64>, String> {
        let mut id = id;
        while let Some(other) = self.representatives.get(id) {
            id = other;
        }
        let Protein { sites, length, .. } = &self.proteins[id];
        let mut sum = Some(0.0);
        for &(wild_type, position, mutant) in &variant.0 {
            if position > *length && *length > 0 {
                return Err(format!(
                    "expected {} at position {position}, found a protein of {length} residues",
                    char::from(wild_type)
                ));
            }
            let site = sites[&position];
            if let Some(residue) = site.residue.filter(|residue| *residue != wild_type) {
                let [expected, found] = [wild_type, residue].map(char::from);
                return Err(format!(
                    "expected {expected} at position {position}, found {found}"
                ));
            }
            let place = |letter| AMINO_ACIDS.iter().position(|&other| other == letter);
            let ratio = site.log_probs.zip(place(wild_type)).zip(place(mutant));
            let ratio = ratio.map(|((log_probs, wild_type), mutant)| {
                f64::from(log_probs[mutant]) - f64::from(log_probs[wild_type])
            });
            sum = sum.zip(ratio).map(|(sum, ratio)| sum + ratio);
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_read_and_others_are_refused() {
        assert_eq!(
            "A123V:X5R".parse(),
            Ok(Variant(vec![(b'A', 123, b'V'), (b'X', 5, b'R')]))
        );
        for wrong in [
            "",
            "A",
            "AV",
            "A0V",
            "A-1V",
            "a1V",
            "A1X",
            "A1v",
            "A1V:",
            "1A2",
            "A1.5V",
            "A99999999999V",
            "A1V:A1R",
            "A1V R2K",
        ] {
            assert!(wrong.parse::<Variant>().is_err(), "{wrong}");
        }
    }
}
