//! What e4m3 is, for tests: 4 significant bits, exponents from -6 to 8, no infinity.

/// Returns the value of some bits.
pub(crate) fn value(bits: u8) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let size = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction * f32::powi(2.0, -9),
        _ => (8.0 + fraction) * f32::powi(2.0, exponent - 10),
    };
    if bits & 0x80 == 0 { size } else { -size }
}

/// Returns the bits of the nearest value, the even ones of two. What is too large becomes 448.
pub(crate) fn nearest(of: f32) -> u8 {
    if of.is_nan() {
        return 0x7f;
    }
    let size = f64::from(of.abs().min(448.0));
    let distance = |&bits: &u8| ((f64::from(value(bits)) - size).abs(), bits & 1);
    let all = (0..0x7f_u8).min_by(|a, b| distance(a).partial_cmp(&distance(b)).unwrap());
    all.unwrap() | u8::from(of.is_sign_negative()) << 7
}

/// Returns a row in e4m3, and the factor that undoes it.
pub(crate) fn quantised(row: &[f32]) -> (Vec<u8>, f32) {
    let largest = row
        .iter()
        .fold(0.0, |largest: f32, value| largest.max(value.abs()));
    if largest < f32::powi(2.0, -100) {
        return (row.iter().map(|&value| nearest(value)).collect(), 1.0);
    }
    let factor = 448.0 / largest;
    let values = row.iter().map(|&value| nearest(value * factor));
    (values.collect(), largest / 448.0)
}
