//! Vectors that somebody else computed.

use plmkit_contract::Column;

use crate::ReferenceError;

/// Vectors by id and start: what embeddings are compared with. It is held in memory.
#[derive(Debug)]
pub struct Reference {
    columns: Vec<ReferenceColumn>,
    /// Id and start, in the order of rows.
    keys: Vec<(String, u32)>,
    /// The rows, by key.
    order: Vec<usize>,
}

#[derive(Debug)]
struct ReferenceColumn {
    name: String,
    /// Values of one vector; known from the first row on.
    dim: Option<usize>,
    /// (rows, dim)
    values: Vec<f32>,
}

impl Reference {
    /// A reference with vector columns of these names and no rows yet.
    pub fn new(columns: impl IntoIterator<Item = String>) -> Self {
        let columns = columns.into_iter().map(|name| ReferenceColumn {
            name,
            dim: None,
            values: Vec::new(),
        });
        Self {
            columns: columns.collect(),
            keys: Vec::new(),
            order: Vec::new(),
        }
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
    /// If two rows have the same id and start.
    pub fn sort(&mut self) -> Result<(), ReferenceError> {
        self.order = (0..self.keys.len()).collect();
        self.order.sort_by_key(|&row| &self.keys[row]);
        let mut pairs = self.order.windows(2);
        match pairs.find(|pair| self.keys[pair[0]] == self.keys[pair[1]]) {
            None => Ok(()),
            Some(pair) => {
                let (id, start) = self.keys[pair[0]].clone();
                Err(ReferenceError::Doubled { id, start })
            }
        }
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.keys.len()
    }

    /// The id and the start of a row.
    pub(crate) fn key(&self, row: usize) -> (&str, u32) {
        let (id, start) = &self.keys[row];
        (id, *start)
    }

    /// The row with this id and start.
    pub(crate) fn find(&self, id: &str, start: u32) -> Option<usize> {
        let place = self
            .order
            .binary_search_by(|&row| self.key(row).cmp(&(id, start)));
        place.ok().map(|place| self.order[place])
    }

    /// The vector of a row in a column; empty where the column has no values.
    pub(crate) fn vector(&self, row: usize, column: usize) -> &[f32] {
        let column = &self.columns[column];
        let dim = column.dim.unwrap_or(0);
        &column.values[row * dim..(row + 1) * dim]
    }

    /// For each of `columns` the reference column to compare it with: the one of the same name, or, where both
    /// sides have a single column of one vector a row, that one.
    pub(crate) fn pair(&self, columns: &[Column]) -> Result<Vec<Option<usize>>, ReferenceError> {
        let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
        let mut pairs: Vec<Option<usize>> = names
            .iter()
            .map(|name| self.columns.iter().position(|column| column.name == *name))
            .collect();
        let pooled = |column: &Column| matches!(column, Column::Pooled(_));
        let mut vectors = (0..columns.len()).filter(|&place| pooled(&columns[place]));
        if let (Some(place), None, [_]) = (vectors.next(), vectors.next(), &*self.columns) {
            pairs[place] = Some(0);
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
    use plmkit_contract::{Pooling, VectorColumn};

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
        let mean = Column::Pooled(VectorColumn {
            pool: Pooling::Mean,
            layer: 6,
        });
        let max = Column::Pooled(VectorColumn {
            pool: Pooling::Max,
            layer: 6,
        });
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
}
