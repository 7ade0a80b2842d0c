//! How far two results are apart.

/// The largest difference between two `(rows, channels)` arrays, relative to what is large in a typical channel.
///
/// The scale is the median over channels of the channel's largest absolute value: beside the outlier channels of a
/// residual stream, an error that spoils every other channel would look small.
pub fn relative_error(found: &[f32], expected: &[f32], channels: usize) -> f64 {
    assert_eq!(found.len(), expected.len());
    let mut largest = vec![0f32; channels];
    for row in expected.chunks_exact(channels) {
        for (largest, value) in largest.iter_mut().zip(row) {
            *largest = largest.max(value.abs());
        }
    }
    largest.sort_by(f32::total_cmp);
    let scale = f64::from(largest[channels / 2]);
    let differences = found
        .iter()
        .zip(expected)
        .map(|(a, b)| f64::from(*a) - f64::from(*b));
    let error = differences.fold(0.0, |error: f64, difference| {
        assert!(difference.is_finite());
        error.max(difference.abs())
    });
    error / scale
}

/// The cosine of the angle between two vectors.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
