//! Vectors that somebody else computed.

use std::collections::BTreeMap;

use plmkit_contract::Column;

/// Vectors by id and start: what embeddings are compared with. It is held in memory.
#[derive(Debug, Default)]
pub struct Reference {
    /// The name of its file.
    pub name: String,
    /// The names of its vector columns.
    pub columns: Vec<String>,
    /// By id and start: a vector for each column.
    pub(crate) rows: BTreeMap<(String, u32), Vec<Vec<f32>>>,
}

impl Reference {
    /// A reference of this name with these vector columns, and no rows yet.
    pub fn new(name: String, columns: Vec<String>) -> Self {
        Self {
            name,
            columns,
            ..Self::default()
        }
    }

    /// Adds a row with a vector for each column. Returns false if a row has this id and start.
    pub fn push(&mut self, id: &str, start: u32, vectors: Vec<Vec<f32>>) -> bool {
        self.rows.insert((id.to_owned(), start), vectors).is_none()
    }

    /// Each of `columns` with the place of that of the same name, if there is one; where both sides have a single column of one vector
    /// a row, of that one.
    pub fn pair(&self, columns: &[Column]) -> Vec<(Column, Option<usize>)> {
        let pooled = |column: &&Column| matches!(column, Column::Pooled { .. });
        let is_single = columns.iter().filter(pooled).count() == 1 && self.columns.len() == 1;
        let pairs = columns.iter().map(|column| {
            let name = column.to_string();
            let place = self.columns.iter().position(|known| *known == name);
            let only = (is_single && pooled(&column)).then_some(0);
            (*column, place.or(only))
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_paired_by_name_or_where_there_is_only_one() {
        let pair = |theirs: &[&str], columns: &[&str]| {
            let columns = columns.iter().map(|name| name.parse().expect("a column"));
            let theirs = theirs.iter().map(|&name| name.to_owned()).collect();
            let reference = Reference::new(String::new(), theirs);
            let pairs = reference.pair(&columns.collect::<Vec<_>>());
            pairs
                .into_iter()
                .map(|(_, place)| place)
                .collect::<Vec<_>>()
        };
        let names = ["mean_6", "max_6"];
        assert_eq!(pair(&["max_6", "x"], &names), [None, Some(0)]);
        assert_eq!(pair(&["x"], &["residues_6", "max_6"]), [None, Some(0)]);
        assert_eq!(pair(&["x"], &names), [None, None]);
        assert_eq!(pair(&["x", "y"], &["mean_6"]), [None]);
    }
}
