//! What was found in some of the files; the findings in all of them make the verdict.

use std::collections::{BTreeMap, BTreeSet};

use plmkit_contract::{Column, ModelName};
use roaring::RoaringTreemap;

use crate::agreement::{self, ColumnAgreement};
use crate::check::Tallies;
use crate::checks::coverage;
use crate::files::{EmbeddedFile, ShardFile};
use crate::sequences::Sequences;
use crate::{CHECKS, Check, Criteria, Verdict, manifest, ordinals, origin, rejected};

/// What was found in some files, in a size that does not depend on the number of their rows.
#[derive(Debug, Default)]
pub struct Findings {
    pub(crate) rows: u64,
    pub(crate) truncated: u64,
    /// Whether shards say what is expected.
    pub(crate) knows_shards: bool,
    pub(crate) tallies: Tallies,
    /// The records in the shards.
    pub(crate) ordinals: RoaringTreemap,
    /// The shards.
    pub shards: Vec<ShardFile>,
    /// The embeddings files.
    pub embeddings: Vec<EmbeddedFile>,
    /// What was sampled of each column.
    pub(crate) columns: Vec<(Column, Sequences)>,
    pub(crate) recomputed: Vec<ColumnAgreement>,
    pub(crate) agreement: Vec<ColumnAgreement>,
    /// The rows of the reference that were found, by id and start.
    pub(crate) found: BTreeSet<(String, u32)>,
}

impl Findings {
    /// Adds what was found in other files, which follow these.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.truncated += other.truncated;
        self.knows_shards |= other.knows_shards;
        self.tallies.merge(other.tallies);
        // The windows of a protein are in one shard.
        for ordinal in &self.ordinals & &other.ordinals {
            let problem = "in the shards more than once";
            self.tallies
                .add(coverage::doubled_in_shards, ordinal, problem);
        }
        self.ordinals |= other.ordinals;
        self.shards.extend(other.shards);
        self.embeddings.extend(other.embeddings);
        for (column, sequences) in other.columns {
            sequences.add_to(&mut self.columns, column, &mut self.tallies);
        }
        for column in other.recomputed {
            column.add_to(&mut self.recomputed);
        }
        for column in other.agreement {
            column.add_to(&mut self.agreement);
        }
        self.found.extend(other.found);
    }

    /// Returns two names of the model, if files have others: they are of one work nevertheless.
    pub fn two_models(&self) -> Option<[&ModelName; 2]> {
        let files = self.embeddings.iter();
        let mut models = files.filter_map(|file| file.provenance.model.as_ref());
        let first = models.next()?;
        Some([first, models.find(|other| *other != first)?])
    }

    /// Puts the files of one run in the order given.
    pub fn sort(&mut self) {
        self.shards.sort_by_key(|file| file.position);
        self.embeddings.sort_by_key(|file| file.position);
    }

    /// The verdict on all files.
    pub fn verdict(&self, criteria: &Criteria) -> Verdict {
        let manifest = criteria.manifest.as_ref().map(|(_, manifest)| manifest);
        let known = manifest.and_then(|manifest| manifest.known.as_ref());
        let counted = criteria.counted();
        let records = counted.map(|(records, _)| records);
        let mut rejected = BTreeMap::new();
        for line in criteria.rejects.iter().flat_map(|(_, list)| &list.lines) {
            *rejected.entry(line.reason).or_default() += 1;
        }
        if let Some((_, counted)) = counted.filter(|_| criteria.lists(false).next().is_none()) {
            rejected.extend(counted.iter().filter(|(_, count)| **count > 0));
        }
        let mut tallies = self.tallies.clone();
        tallies.merge(criteria.aliases.wrong.clone());
        if tallies.counted(coverage::missing) > 0 {
            origin::list_without_list(self, criteria, &mut tallies);
        }
        ordinals::check(&self.ordinals, criteria, &mut tallies);
        if let Some(manifest) = manifest {
            manifest::check(manifest, self, criteria, &rejected, &mut tallies);
        }
        origin::check(self, criteria, &mut tallies);
        rejected::check(self, criteria, &rejected, &mut tallies);
        agreement::check(&self.found, criteria, &mut tallies);
        let mut not_compared: Vec<Column> = Vec::new();
        let all = criteria.reference.iter().flat_map(|(reference, _)| {
            let columns = self.embeddings.iter().map(|file| &file.layout.columns);
            let pairs = columns.flat_map(|columns| reference.pair(columns));
            pairs.filter_map(|(column, place)| place.is_none().then_some(column))
        });
        for column in all {
            if !not_compared.contains(&column) {
                not_compared.push(column);
            }
        }
        let not_recomputed = criteria.not_recomputed.unwrap_or("no model was given");
        let not_recomputed = format!("not recomputed: {not_recomputed}");
        let without = |name: &str, is_counted: bool| match name {
            "coverage" | "records" | "ordinals" if !self.knows_shards => {
                Some("no shards were given")
            }
            "ordinals" if criteria.rejects.is_empty() => Some("no rejects were given"),
            "manifest" if manifest.is_none() => Some("no manifest was given"),
            "outliers" if !is_counted => Some("there are no pooled vectors"),
            "pooling" if !is_counted => Some("no layer has several columns to compare"),
            "contacts" if !is_counted => Some("there are no contacts"),
            "reference" if criteria.reference.is_none() => Some("no reference was given"),
            "spot-check" if criteria.recomputed.is_none() => Some(not_recomputed.as_str()),
            _ => None,
        };
        let checks = CHECKS.iter().map(|definition| {
            let check = tallies.check(definition);
            let is_counted = check.counts.values().any(|&count| count > 0);
            match without(definition.name, is_counted) {
                Some(why) => Check::skipped(definition.name, why),
                None => check,
            }
        });
        Verdict {
            records,
            rows: self.rows,
            truncated: self.truncated,
            aliases: manifest.map(|manifest| manifest.aliases.as_ref().map_or(0, |list| list.rows)),
            known: manifest.map(|_| known.map_or(0, |known| known.list.rows)),
            residues_truncated: manifest
                .and_then(|manifest| manifest.changed.get("residues_truncated").copied()),
            checks: checks.collect(),
            rejected,
            spot_check: self.recomputed.clone(),
            agreement: self.agreement.clone(),
            not_compared,
        }
    }
}
