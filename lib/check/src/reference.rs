//! Vectors that somebody else computed.

use plmkit_contract::Column;

use crate::ReferenceError;

/// A reference under construction.
#[derive(Debug)]
pub struct ReferenceBuilder {
    columns: Vec<Vectors>,
    keys: Vec<(String, u32)>, // (id, start), in the order of rows
}

#[derive(Debug)]
struct Vectors {
    name: String,
    /// Values of one vector; known from the first row on.
    dim: Option<usize>,
    /// (rows, dim)
    values: Vec<f32>,
}

impl ReferenceBuilder {
    /// A reference with vector columns of these names and no rows yet.
    pub fn new(columns: impl IntoIterator<Item = String>) -> Self {
        let columns = columns.into_iter();
        Self {
            columns: columns
                .map(|name| Vectors {
                    name,
                    dim: None,
                    values: Vec::new(),
                })
                .collect(),
            keys: Vec::new(),
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

    /// The finished reference.
    ///
    /// # Errors
    /// If two rows have the same id and start.
    pub fn finish(self) -> Result<Reference, ReferenceError> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_by(|&a, &b| self.keys[a].cmp(&self.keys[b]));
        for pair in order.windows(2) {
            let (id, start) = &self.keys[pair[0]];
            if self.keys[pair[0]] == self.keys[pair[1]] {
                return Err(ReferenceError::Doubled {
                    id: id.clone(),
                    start: *start,
                });
            }
        }
        Ok(Reference {
            columns: self.columns,
            keys: self.keys,
            order,
        })
    }
}

/// Vectors by id and start: what embeddings are compared with. It is held in memory.
#[derive(Debug)]
pub struct Reference {
    columns: Vec<Vectors>,
    keys: Vec<(String, u32)>,
    /// The rows, by key.
    order: Vec<usize>,
}

impl Reference {
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
        ReferenceBuilder::new(columns.iter().map(ToString::to_string))
            .finish()
            .expect("no rows")
    }

    #[test]
    fn rows_are_found_by_id_and_start() {
        let mut builder = ReferenceBuilder::new(["a".to_owned(), "b".to_owned()]);
        for (id, start, value) in [("Q", 0, 1.0), ("P", 5, 2.0), ("P", 0, 3.0)] {
            builder
                .push(id, start, [&[value; 2][..], &[-value; 3]])
                .expect("one length");
        }
        let reference = builder.finish().expect("each key once");
        let found = reference.find("P", 5).expect("pushed");
        assert_eq!(reference.vector(found, 0), [2.0, 2.0]);
        assert_eq!(reference.vector(found, 1), [-2.0, -2.0, -2.0]);
        assert_eq!(reference.find("P", 6), None);
        assert_eq!(reference.find("R", 0), None);
    }

    #[test]
    fn a_doubled_key_or_a_ragged_column_is_refused() {
        let mut builder = ReferenceBuilder::new(["a".to_owned()]);
        builder.push("P", 0, [&[1.0][..]]).expect("the first");
        let error = builder
            .push("Q", 0, [&[1.0, 2.0][..]])
            .expect_err("two values");
        assert_eq!(
            error.to_string(),
            "'Q': column 'a': expected 1 value, found 2"
        );
        builder.push("P", 0, [&[2.0][..]]).expect("one value");
        let error = builder.finish().expect_err("P twice");
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
