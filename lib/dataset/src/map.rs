//! A map of vectors: a sample of the rows on their first two principal components.

use plmkit_contract::{Column, KeyColumns, Pooling};
use plmkit_kit::Stop;
use plmkit_store::StoreError;

use crate::components::components;
use crate::neighbours::dot;
use crate::{Dataset, DatasetError, Merge, Vectors};

/// The vectors of some proteins in the plane in which they differ most.
#[derive(Clone, Debug)]
pub struct VectorMap {
    /// The column of the vectors.
    pub column: String,
    /// Whether later windows of proteins are left out.
    pub has_windows: bool,
    /// The shares of the variance of the vectors along both axes, 0 to 1.
    pub shares: [f64; 2],
    /// The points, by the datasets.
    pub points: Vec<Vec<MapPoint>>,
}

/// A protein: its place, and its id.
pub type MapPoint = ([f64; 2], String);

/// Draws a map of datasets that were made alike, with at most `most` points, equally spaced in the input; `None` if fewer than three
/// proteins have vectors, or all the same. The signs of the axes are those with which the largest weight of each is positive.
///
/// # Errors
/// If the datasets were made in different ways, or a file is damaged.
pub fn map_vectors(
    datasets: Vec<Dataset>,
    most: u64,
    stop: &Stop,
) -> Result<Option<VectorMap>, DatasetError> {
    let Some(first) = datasets.first() else {
        return Ok(None);
    };
    let columns = first.layout().columns.iter().enumerate();
    // Of the last layer the mean, if there is one. A token of its own may be the same in all proteins.
    let rank = |column: &Column| match column {
        Column::Pooled { pool, layer } => {
            Some((*pool == Pooling::Mean, *pool != Pooling::Bos, *layer))
        }
        _ => None,
    };
    let columns = columns.filter(|(_, column)| rank(column).is_some());
    let Some((place, _)) = columns.max_by_key(|(_, column)| rank(column)) else {
        return Ok(None);
    };
    let first = &first.parts[0];
    for part in datasets.iter().flat_map(|dataset| &dataset.parts) {
        if let Some(what) = part.difference(first) {
            return Err(DatasetError::content(&part.path, what));
        }
    }
    let folder = datasets[0].path.clone();
    let Some(joined) = Dataset::join(&folder, datasets) else {
        return Ok(None);
    };
    let (column, dim) = (
        joined.layout().columns[place].to_string(),
        joined.layout().dim,
    );
    let (mut part, mut starts) = (0, Vec::new());
    for sample in joined.samples() {
        starts.push(joined.parts[part].offset);
        part += sample.parts.len();
    }
    let groups = joined.parts.iter().flat_map(|part| &part.groups);
    let end = groups.map(|group| group.ordinals.1 + 1).max().unwrap_or(0);
    let spacing = end.div_ceil(most.max(1)).max(1);
    let chosen: Vec<u64> = (0..end).step_by(spacing as usize).collect();
    let mut merge = Merge::new(&joined.parts, [place], stop).of_ordinals(&chosen);
    let (mut values, mut found, mut has_windows) = (Vec::new(), Vec::new(), false);
    while let Some(rows) = merge.next_rows()? {
        let vectors = Vectors::new(&rows[&*column]);
        for (row, key) in KeyColumns::new(&rows).rows().enumerate() {
            let vector = vectors.row(row);
            has_windows |= key.start > 0;
            if key.start == 0 && dot(vector, vector).is_finite() {
                values.extend_from_slice(vector);
                let dataset = starts.partition_point(|&start| start <= key.ordinal) - 1;
                found.push((dataset, key.id.to_owned()));
            }
        }
    }
    StoreError::check(stop)?;
    let Some((axes, shares)) = components(&mut values, dim).filter(|_| found.len() > 2) else {
        return Ok(None);
    };
    let mut points = vec![Vec::new(); starts.len()];
    for (vector, (dataset, id)) in values.chunks_exact(dim).zip(found) {
        points[dataset].push((axes.each_ref().map(|axis| dot(vector, axis)), id));
    }
    Ok(Some(VectorMap {
        column,
        has_windows,
        shares,
        points,
    }))
}
