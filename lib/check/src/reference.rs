//! Vectors that somebody else computed.

use plmkit_contract::Column;

use crate::{MatchBy, ReferenceError};

/// Vectors by id and start: what embeddings are compared with. It is held in memory.
#[derive(Debug)]
pub struct Reference {
    columns: Vec<ReferenceColumn>,
    match_by: MatchBy,
    /// Id and start, in the order of rows.
    keys: Vec<(String, u32)>,
    /// The rows, by key.
    order: Vec<usize>,
}

#[derive(Debug)]
struct ReferenceColumn {
    name: String,
    /// Whether embeddings must have a column to compare it with.
    asked: bool,
    /// The one column to compare it with, where that is not found by name.
    ours: Option<Column>,
    /// Values of one vector; known from the first row on.
    dim: Option<usize>,
    /// (rows, dim)
    values: Vec<f32>,
}

impl Reference {
    /// A reference with vector columns of these names and no rows yet.
    pub fn new(columns: impl IntoIterator<Item = String>) -> Self {
        let columns = columns.into_iter().map(|name| (name, None));
        Self::with_columns(columns, false)
    }

    /// A reference with vector columns of these names, each of which must be compared: with a column of the embeddings
    /// where one is given, else as by [`Reference::new`].
    pub fn asked(columns: impl IntoIterator<Item = (String, Option<Column>)>) -> Self {
        Self::with_columns(columns, true)
    }

    fn with_columns(
        columns: impl IntoIterator<Item = (String, Option<Column>)>,
        asked: bool,
    ) -> Self {
        let columns = columns.into_iter().map(|(name, ours)| ReferenceColumn {
            name,
            asked,
            ours,
            dim: None,
            values: Vec::new(),
        });
        Self {
            columns: columns.collect(),
            match_by: MatchBy::default(),
            keys: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Matches rows by this part of their id.
    #[must_use]
    pub fn matched_by(self, match_by: MatchBy) -> Self {
        Self { match_by, ..self }
    }

    /// Adds the vectors of one row, one for each column.
    ///
    /// # Errors
    /// If a vector is not as long as that of the first row in its column.
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
        self.keys.push((id.to_owned(), start));
        Ok(())
    }

    /// Sorts the rows, all of which have been added, so that they can be found.
    ///
    /// # Errors
    /// If two rows have the same start, and the same id or the part of it by which rows are matched.
    pub fn sort(&mut self) -> Result<(), ReferenceError> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        // Stable: of two rows with one key the one that was added first stays first.
        order.sort_by(|&row, &other| self.sort_key(row).cmp(&self.sort_key(other)));
        let mut pairs = order.windows(2);
        let doubled = pairs.find(|pair| self.sort_key(pair[0]) == self.sort_key(pair[1]));
        if let Some(&[first, row]) = doubled {
            let ((id, start), (first_id, _)) = (self.keys[row].clone(), self.key(first));
            let first_id = first_id.to_owned();
            return Err(ReferenceError::Doubled {
                id,
                start,
                row,
                first,
                first_id,
            });
        }
        self.order = order;
        Ok(())
    }

    /// The part of an id by which rows are matched.
    pub(crate) fn key_of<'a>(&self, id: &'a str) -> &'a str {
        self.match_by.key(id)
    }

    fn sort_key(&self, row: usize) -> (&str, u32) {
        let (id, start) = self.key(row);
        (self.key_of(id), start)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.keys.len()
    }

    /// The id and the start of a row.
    pub(crate) fn key(&self, row: usize) -> (&str, u32) {
        let (id, start) = &self.keys[row];
        (id, *start)
    }

    /// The row with this id and start.
    pub(crate) fn find(&self, id: &str, start: u32) -> Option<usize> {
        let key = (self.key_of(id), start);
        let place = self
            .order
            .binary_search_by(|&row| self.sort_key(row).cmp(&key));
        place.ok().map(|place| self.order[place])
    }

    /// The vector of a row in a column; empty where the column has no values.
    pub(crate) fn vector(&self, row: usize, column: usize) -> &[f32] {
        let column = &self.columns[column];
        let dim = column.dim.unwrap_or(0);
        &column.values[row * dim..(row + 1) * dim]
    }

    /// For each of `columns` the reference column to compare it with: the one that was given for it or has the same name,
    /// or, where both sides have a single column of one vector a row, that one.
    pub(crate) fn pair(&self, columns: &[Column]) -> Result<Vec<Option<usize>>, ReferenceError> {
        let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
        let mut pairs: Vec<Option<usize>> = columns
            .iter()
            .zip(&names)
            .map(|(ours, name)| {
                let same = |column: &ReferenceColumn| match &column.ours {
                    Some(column) => column == ours,
                    None => column.name == *name,
                };
                self.columns.iter().position(same)
            })
            .collect();
        let pooled = |column: &Column| matches!(column, Column::Pooled { .. });
        let mut vectors = (0..columns.len()).filter(|&place| pooled(&columns[place]));
        if let (Some(place), None, [ReferenceColumn { ours: None, .. }]) =
            (vectors.next(), vectors.next(), &*self.columns)
        {
            pairs[place] = Some(0);
        }
        let unpaired = |(place, column): &(usize, &ReferenceColumn)| {
            column.asked && !pairs.contains(&Some(*place))
        };
        if let Some((_, column)) = self.columns.iter().enumerate().find(unpaired) {
            let ours = column.ours.as_ref();
            return Err(ReferenceError::NotPaired {
                name: column.name.clone(),
                expected: ours
                    .map_or_else(|| "a column of its name".to_owned(), ToString::to_string),
                embeddings: names,
            });
        }
        if pairs.iter().any(Option::is_some) {
            Ok(pairs)
        } else {
            let reference = self
                .columns
                .iter()
                .map(|column| column.name.clone())
                .collect();
            Err(ReferenceError::NoCommonColumn {
                reference,
                embeddings: names,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::Pooling;

    use super::*;

    fn reference(columns: &[&str]) -> Reference {
        Reference::new(columns.iter().map(ToString::to_string))
    }

    #[test]
    fn rows_are_found_by_id_and_start() {
        let mut reference = Reference::new(["a".to_owned(), "b".to_owned()]);
        for (id, start, value) in [("Q", 0, 1.0), ("P", 5, 2.0), ("P", 0, 3.0)] {
            reference
                .push(id, start, [&[value; 2][..], &[-value; 3]])
                .expect("one length");
        }
        reference.sort().expect("each key once");
        let found = reference.find("P", 5).expect("pushed");
        assert_eq!(reference.vector(found, 0), [2.0, 2.0]);
        assert_eq!(reference.vector(found, 1), [-2.0, -2.0, -2.0]);
        assert_eq!(reference.find("P", 6), None);
        assert_eq!(reference.find("R", 0), None);
    }

    #[test]
    fn a_doubled_key_or_a_ragged_column_is_refused() {
        let mut reference = Reference::new(["a".to_owned()]);
        reference.push("P", 0, [&[1.0][..]]).expect("the first");
        let error = reference
            .push("Q", 0, [&[1.0, 2.0][..]])
            .expect_err("two values");
        assert_eq!(
            error.to_string(),
            "'Q': column 'a': expected 1 value, found 2"
        );
        reference.push("P", 0, [&[2.0][..]]).expect("one value");
        let error = reference.sort().expect_err("P twice");
        assert_eq!(
            error.to_string(),
            "'P' from residue 0 is in it more than once"
        );
    }

    #[test]
    fn columns_pair_by_name_or_when_there_is_no_choice() {
        let mean = Column::Pooled {
            pool: Pooling::Mean,
            layer: 6,
        };
        let max = Column::Pooled {
            pool: Pooling::Max,
            layer: 6,
        };
        let names = reference(&["max_6", "mean_6"]);
        assert_eq!(names.pair(&[mean, max]), Ok(vec![Some(1), Some(0)]));
        assert_eq!(
            reference(&["mean_6", "x"]).pair(&[mean, max]),
            Ok(vec![Some(0), None])
        );
        assert_eq!(reference(&["embedding"]).pair(&[mean]), Ok(vec![Some(0)]));
        assert!(reference(&["embedding"]).pair(&[mean, max]).is_err());
        assert!(reference(&["x", "y"]).pair(&[mean]).is_err());
    }

    #[test]
    fn columns_that_are_asked_for_are_all_compared_with_those_that_are_named() {
        let column = |pool| Column::Pooled { pool, layer: 6 };
        let (mean, max) = (column(Pooling::Mean), column(Pooling::Max));
        let asked = |columns: &[(&str, Option<Column>)]| {
            let columns = columns.iter().map(|&(name, ours)| (name.to_owned(), ours));
            Reference::asked(columns)
        };
        // Its own name does not matter: another column has been named for it.
        let crossed = asked(&[("mean_6", Some(max)), ("x", Some(mean))]);
        assert_eq!(crossed.pair(&[mean, max]), Ok(vec![Some(1), Some(0)]));
        assert_eq!(asked(&[("x", None)]).pair(&[mean]), Ok(vec![Some(0)]));
        for columns in [
            &[("x", Some(max))][..],
            &[("mean_6", None), ("x", None)],
            &[("x", Some(mean)), ("mean_6", None)],
        ] {
            let error = asked(columns).pair(&[mean]).expect_err("one is left over");
            let what = error.to_string();
            assert!(what.ends_with("to compare it with, found mean_6"), "{what}");
        }
    }

    #[test]
    fn rows_are_found_by_accession() {
        let mut reference = reference(&["a"]).matched_by(MatchBy::Accession);
        for (id, start) in [("tr|Q|Q_X", 0), ("P", 5), ("sp|P|P_X", 0), ("P-2", 0)] {
            reference.push(id, start, [&[1.0][..]]).expect("one value");
        }
        reference.sort().expect("each accession and start once");
        let key = |id: &str, start| reference.find(id, start).map(|row| reference.key(row));
        assert_eq!(key("Q", 0), Some(("tr|Q|Q_X", 0)));
        assert_eq!(key("sp|P|P_Y", 5), Some(("P", 5)));
        assert_eq!(key("tr|P-2|P_Y", 0), Some(("P-2", 0)));
        assert_eq!(key("P", 1), None);
        reference.push("P", 0, [&[1.0][..]]).expect("one value");
        let error = reference.sort().expect_err("P twice");
        assert_eq!(
            error.to_string(),
            "'P' from residue 0 is in it more than once, also as 'sp|P|P_X'"
        );
    }
}
