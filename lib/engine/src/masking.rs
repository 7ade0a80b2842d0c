//! Which residues are masked, so that each is predicted from the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use plmkit_contract::{
    ByteDigest, DEFAULT_BATCH_TOKENS, RowSpan, SPECIAL_TOKENS, Scores, ShortIds, asked_by,
};
use plmkit_store::{IdValue, StoreError, read_id_values};
use serde_json::json;

use crate::config::RunConfig;

/// The residues that a run masks.
#[derive(Debug)]
pub(crate) struct Masking {
    /// The positions of a file; all residues without one.
    listed: Option<(PathBuf, Lines)>,
}

/// By id and position, from 1, the line.
type Lines = BTreeMap<String, BTreeMap<u32, IdValue>>;

impl Masking {
    /// Reads which residues a run masks; `None` if it masks none.
    pub(crate) fn of(config: &RunConfig) -> Result<Option<Self>, StoreError> {
        if config.outputs.scores != Some(Scores::Masked) {
            return Ok(None);
        }
        let path = config.scores_positions.clone();
        let read = |path: PathBuf| Ok((path.clone(), read_lines(&path)?));
        let listed = path.map(read).transpose()?;
        Ok(Some(Self { listed }))
    }

    /// Returns the residues of a row to mask, counted from 0, as passes: those whose copies of the row fit into `budget` tokens
    /// together. Passes of a row are nearly equal.
    pub(crate) fn passes(&self, id: &str, row: RowSpan, budget: Option<u64>) -> Vec<Vec<usize>> {
        let residues: Vec<usize> = match &self.listed {
            None => (0..row.residues).collect(),
            Some((_, lines)) => {
                let lines = asked_by(id).filter_map(|id| lines.get(id));
                let positions: BTreeSet<&u32> = lines.flat_map(BTreeMap::keys).collect();
                let positions = positions.into_iter();
                let offsets =
                    positions.filter_map(|position| (position - 1).checked_sub(row.start));
                let offsets = offsets.map(|offset| offset as usize);
                offsets.filter(|&offset| offset < row.residues).collect()
            }
        };
        let budget = budget.unwrap_or(DEFAULT_BATCH_TOKENS.get().into()) as usize;
        let copies = (budget / (row.residues + SPECIAL_TOKENS as usize)).max(1);
        let passes = residues.len().div_ceil(copies).max(1);
        let even = residues.len().div_ceil(passes).max(1);
        residues.chunks(even).map(<[usize]>::to_vec).collect()
    }

    /// Checks that each listed position of the proteins is that of a residue. `ends` are their residues, by id. Other ids are told: they
    /// may be in other shards.
    pub(crate) fn check(&self, ends: &HashMap<String, u64>) -> Result<(), StoreError> {
        let Some((path, listed)) = &self.listed else {
            return Ok(());
        };
        let mut named = ShortIds::new(listed.keys().map(String::as_str));
        for id in ends.keys() {
            named.see(id);
        }
        let (mut beyond, mut others) = (Vec::new(), Vec::new());
        for (id, lines) in listed {
            let first = lines.values().min_by_key(|line| line.line);
            let ended = named.resolve(id).map(|id| ends.get(id?));
            let failed = |what: &String| first.map(|line| line.error(path, what));
            if let Some(error) = ended.as_ref().err().and_then(failed) {
                return Err(error);
            }
            let Ok(Some(&end)) = ended else {
                others.extend(first);
                continue;
            };
            let wrong = lines.iter();
            let wrong = wrong.filter(|&(&position, _)| u64::from(position) > end);
            beyond.extend(wrong.map(|(_, line)| (line, end)));
        }
        if let Some((line, end)) = beyond.into_iter().min_by_key(|(line, _)| line.line) {
            let what = format_args!("expected a position from 1 to {end}, the residues to embed");
            return Err(line.error(path, what));
        }
        if let Some(first) = others.iter().min_by_key(|line| line.line) {
            let (others, all) = (others.len(), listed.len());
            let what = format_args!(
                "not in these batches, the first of {others} of {all} ids: expected in those of other shards"
            );
            tracing::warn!("{}", first.error(path, what));
        }
        Ok(())
    }

    /// The digest of the listed positions.
    pub(crate) fn digest(&self) -> Option<String> {
        let (_, lines) = self.listed.as_ref()?;
        let lines = lines.iter();
        let positions: BTreeMap<&String, Vec<&u32>> = lines
            .map(|(id, lines)| (id, lines.keys().collect()))
            .collect();
        Some(ByteDigest::compute(json!(positions).to_string().as_bytes()).to_string())
    }
}

fn read_lines(path: &Path) -> Result<Lines, StoreError> {
    let mut lines = Lines::new();
    for line in read_id_values(path, "position")? {
        let position = line.value.parse().ok().filter(|&position| position > 0);
        let position =
            position.ok_or_else(|| line.error(path, "expected a position, counted from 1"))?;
        let of_protein = lines.entry(line.id.clone()).or_default();
        of_protein.entry(position).or_insert(line);
    }
    if lines.is_empty() {
        return Err(StoreError::malformed(
            path,
            "expected a position, found none",
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(start: u32, residues: usize) -> RowSpan {
        RowSpan {
            start,
            residues,
            length: 500,
            truncated: false,
        }
    }

    fn listed(text: &str) -> Result<Masking, StoreError> {
        let file = tempfile::NamedTempFile::new().expect("temp file");
        std::fs::write(file.path(), text).expect("written");
        let lines = read_lines(file.path())?;
        Ok(Masking {
            listed: Some((file.path().to_owned(), lines)),
        })
    }

    #[test]
    fn passes_hold_each_residue_once_and_fit_into_the_budget() {
        let all = Masking { listed: None };
        for (residues, budget, sizes) in [
            (10, 40, &[3, 3, 3, 1][..]),
            (10, 60, &[5, 5]),
            (10, 70, &[5, 5]),
            (10, 1, &[1; 10]),
            (1, 100, &[1]),
            (0, 100, &[]),
        ] {
            let passes = all.passes("a", row(7, residues), Some(budget));
            let found: Vec<usize> = passes.iter().map(Vec::len).collect();
            assert_eq!(found, sizes, "{residues} {budget}");
            let expected: Vec<usize> = (0..residues).collect();
            assert_eq!(passes.concat(), expected);
        }
    }

    #[test]
    fn listed_positions_are_those_of_the_protein() {
        let some = listed("id,position\na,9\na,12\na,300\nb,1\na,9\n").expect("positions");
        let passes = |id, start, residues| some.passes(id, row(start, residues), None).concat();
        assert_eq!(passes("a", 0, 10), [8]);
        assert_eq!(passes("a", 5, 10), [3, 6]);
        assert_eq!(passes("a", 9, 2), [0; 0]);
        assert_eq!(passes("c", 0, 400), [0; 0]);
        assert_eq!(passes("sp|a|b", 0, 10), [0, 8], "by accession and name");
        let permuted = listed("position\tid\n1\tb\n300\ta\n12\ta\n9\ta\n").expect("positions");
        assert_eq!(some.digest(), permuted.digest());
        let other = listed("id,position\na,9\nb,1\n").expect("positions");
        assert_ne!(some.digest(), other.digest());
    }

    #[test]
    fn a_table_without_a_line_is_refused() {
        let error = listed("id,position\n")
            .expect_err("no position")
            .to_string();
        assert!(
            error.ends_with("expected a position, found none"),
            "{error}"
        );
    }

    #[test]
    fn wrong_positions_are_named_with_their_lines() {
        let some = listed("id,position\na,9\nb,5\na,10\n").expect("positions");
        let check = |ends: &[(&str, u64)]| {
            let ends = ends.iter().map(|&(id, end)| (id.to_owned(), end));
            some.check(&ends.collect())
                .map_err(|error| error.to_string())
        };
        assert_eq!(check(&[("a", 10), ("b", 5)]), Ok(()));
        let error = check(&[("a", 9), ("b", 5)]).expect_err("beyond");
        assert!(
            error.ends_with(
                "line 4 'a' '10': expected a position from 1 to 9, the residues to embed"
            ),
            "{error}"
        );
        assert_eq!(check(&[("a", 10)]), Ok(()), "b may be in another shard");
        assert_eq!(check(&[("sp|a|x", 10), ("tr|y|b", 5)]), Ok(()));
        assert_eq!(check(&[("a", 10), ("sp|a|x", 1)]), Ok(()), "the exact one");
        let error = check(&[("sp|a|x", 10), ("tr|a|y", 10)]).expect_err("two");
        let what = "line 2 'a' '9': 'a' is short for 'sp|a|x' and 'tr|a|y': expected one of these";
        assert!(error.ends_with(what), "{error}");
        for wrong in ["0", "-1", "x", "", "1.5", "99999999999"] {
            let error = listed(&format!("id,position\na,{wrong}\n")).expect_err(wrong);
            assert!(error.to_string().contains("line 2 'a' "), "{error}");
        }
    }
}
