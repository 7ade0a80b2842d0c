//! The activation of the feed-forward networks.

use std::f64::consts::FRAC_1_SQRT_2;

/// GELU as it is defined, `x·Φ(x)` (Hendrycks and Gimpel 2016, arXiv:1606.08415): by erf and not by tanh.
pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2))
}
