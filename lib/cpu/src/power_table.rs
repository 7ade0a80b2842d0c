//! Powers of 2 in bfloat16, by a table.

/// The binary digits after the point of exponents that [`power`] takes, and their bias in bfloat16.
const DIGITS: u32 = 7;
const BIAS: f32 = 127.0;
/// Added to an exponent, it moves the last digit of the sum to the last bit: the last 16 bits of the sum are an exponent of bfloat16, and the
/// digits after the point in place of the mantissa.
pub(crate) const TO_DIGITS: f32 = (3 << (22 - DIGITS)) as f32 + BIAS;
/// The other bits of such a sum, with the sign of bfloat16, for exponents from -127 to 128.
pub(crate) const OTHER_BITS: u32 = ((3 << (22 - DIGITS)) as f32).to_bits();
/// The mantissas in bfloat16 of 2^0, 2^(1/128), 2^(2/128) …
pub(crate) static MANTISSAS: [u8; 1 << DIGITS] = {
    /// 2^(1/128).
    const STEP: f64 = 1.005_429_900_745_184_5;
    let (mut mantissas, mut power, mut at) = ([0; 1 << DIGITS], 1.0, 0);
    while at < mantissas.len() {
        mantissas[at] = (power * 128.0 + 0.5) as u8 - 128;
        power *= STEP;
        at += 1;
    }
    mantissas
};

/// Returns `2^x` in bfloat16 of a sum of `x` and [`TO_DIGITS`], and bits that are zero if `x` is not outside of its exponents.
///
/// Rounding `x` to digits makes an error of at most 0.3 %, as much as rounding to bfloat16.
pub(crate) fn power(sum: f32) -> (u16, u32) {
    let digits = sum.to_bits() as u16;
    let mantissa = MANTISSAS[usize::from(digits) % MANTISSAS.len()];
    let power = digits / 128 * 128 + u16::from(mantissa);
    (power, (sum.to_bits() ^ OTHER_BITS) >> 15)
}
