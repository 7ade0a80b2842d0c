//! Vectors that somebody else computed.

use std::collections::BTreeMap;

use plmkit_contract::Column;

use crate::ReferenceError;

/// Vectors by id and start: what embeddings are compared with. It is held in memory.
#[derive(Debug, Default)]
pub struct Reference {
    /// The names of its files.
    pub files: Vec<String>,
    columns: Vec<ReferenceColumn>,
    /// The place of each row, by id and start.
    rows: BTreeMap<String, BTreeMap<u32, usize>>,
    count: usize,
}

#[derive(Debug, Default)]
struct ReferenceColumn {
    name: String,
    /// Values of one vector; known from the first row on.
    dim: Option<usize>,
    /// (rows, dim)
    values: Vec<f32>,
}

impl Reference {
    /// A reference with vector columns of these names and no rows yet.
    pub fn new(columns: Vec<String>) -> Self {
        let columns = columns.into_iter().map(|name| ReferenceColumn {
            name,
            ..ReferenceColumn::default()
        });
        Self {
            columns: columns.collect(),
            ..Self::default()
        }
    }

    /// Adds the vectors of one row, one for each column.
    ///
    /// # Errors
    /// If a row has this id and start, or if a vector is not as long as that of the first row in its column.
    pub fn push<'a>(
        &mut self,
        id: &str,
        start: u32,
        vectors: impl IntoIterator<Item = &'a [f32]>,
    ) -> Result<(), ReferenceError> {
        for (column, vector) in self.columns.iter_mut().zip(vectors) {
            let expected = *column.dim.get_or_insert(vector.len());
            if vector.len() != expected {
                return Err(ReferenceError::Ragged {
                    id: id.to_owned(),
                    column: column.name.clone(),
                    expected,
                    found: vector.len(),
                });
            }
            column.values.extend_from_slice(vector);
        }
        let starts = self.rows.entry(id.to_owned()).or_default();
        if starts.insert(start, self.count).is_some() {
            let id = id.to_owned();
            return Err(ReferenceError::Doubled { id, start });
        }
        self.count += 1;
        Ok(())
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.count
    }

    /// Id, start and place of each row, by id.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&str, u32, usize)> {
        let rows = self.rows.iter();
        rows.flat_map(|(id, starts)| starts.iter().map(|(&start, &row)| (&**id, start, row)))
    }

    /// The place of the row with this id and start.
    pub(crate) fn find(&self, id: &str, start: u32) -> Option<usize> {
        self.rows.get(id)?.get(&start).copied()
    }

    /// The vector of a row in a column.
    pub(crate) fn vector(&self, row: usize, column: usize) -> &[f32] {
        let column = &self.columns[column];
        let dim = column.dim.unwrap_or(0);
        &column.values[row * dim..(row + 1) * dim]
    }

    /// For each of `columns` the reference column of the same name; where both sides have a single column of one vector a row, that
    /// one.
    pub(crate) fn pair(&self, columns: &[Column]) -> Result<Vec<Option<usize>>, ReferenceError> {
        let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
        let place = |name: &String| self.columns.iter().position(|column| column.name == *name);
        let mut pairs: Vec<Option<usize>> = names.iter().map(place).collect();
        let pooled = |column: &Column| matches!(column, Column::Pooled { .. });
        let mut vectors = (0..columns.len()).filter(|&place| pooled(&columns[place]));
        if let (Some(place), None, 1) = (vectors.next(), vectors.next(), self.columns.len()) {
            pairs[place] = Some(0);
        }
        if pairs.iter().all(Option::is_none) {
            let reference = self.columns.iter();
            return Err(ReferenceError::NoCommonColumn {
                reference: reference.map(|column| column.name.clone()).collect(),
                embeddings: names,
            });
        }
        Ok(pairs)
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
            Reference::new(theirs).pair(&columns.collect::<Vec<_>>())
        };
        let names = ["mean_6", "max_6"];
        assert_eq!(pair(&["max_6", "x"], &names), Ok(vec![None, Some(0)]));
        assert_eq!(
            pair(&["x"], &["residues_6", "max_6"]),
            Ok(vec![None, Some(0)])
        );
        assert!(pair(&["x"], &names).is_err());
        assert!(pair(&["x", "y"], &["mean_6"]).is_err());
    }

    #[test]
    fn rows_are_found_by_id_and_start_and_each_is_there_once() {
        let mut reference = Reference::new(vec!["mean_6".to_owned()]);
        for (id, start) in [("b", 7), ("b", 0), ("a", 0)] {
            reference.push(id, start, [&[1.0][..]]).expect("a value");
        }
        assert_eq!(
            (reference.find("b", 0), reference.find("a", 7)),
            (Some(1), None)
        );
        let doubled = reference.push("b", 7, [&[1.0][..]]);
        assert!(matches!(
            doubled,
            Err(ReferenceError::Doubled { start: 7, .. })
        ));
        let ragged = reference.push("c", 0, [&[1.0, 2.0][..]]);
        assert!(matches!(
            ragged,
            Err(ReferenceError::Ragged { found: 2, .. })
        ));
    }
}
