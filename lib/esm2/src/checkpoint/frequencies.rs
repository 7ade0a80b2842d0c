//! The rotary frequencies of each layer.

use super::CheckpointError;
use super::finite::not_finite;
use super::names::SHARED_INV_FREQ;
use super::parameters::inv_freq_name;
use super::stored::StoredTensors;
use crate::ModelConfig;
use crate::rope::default_inv_freq;

/// Reads the frequencies of a checkpoint, `(head_dim/2)` for each layer. Computes missing ones. Returns for how many layers.
///
/// ESM-2 was trained with frequencies rounded to f16, and its checkpoints store the rounded ones: at position 1000, exact
/// frequencies differ by up to 0.16 radian.
pub(super) fn read_frequencies(
    config: &ModelConfig,
    stored: &StoredTensors,
) -> Result<(Vec<Vec<f32>>, usize), CheckpointError> {
    let mut computed = 0;
    let layers = (0..config.layers)
        .map(|layer| {
            let own = inv_freq_name(layer);
            for name in [own.as_str(), SHARED_INV_FREQ] {
                if let Some(tensor) = stored.find(name) {
                    let error = not_finite(name, tensor, 0, tensor.bytes());
                    return error.map_or_else(|| Ok(tensor.values()), Err);
                }
            }
            computed += 1;
            Ok(default_inv_freq(config.head_dim()))
        })
        .collect::<Result<_, _>>()?;
    Ok((layers, computed))
}
