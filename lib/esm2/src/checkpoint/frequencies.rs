//! The rotary frequencies of each layer.

use std::path::Path;

use plmkit_contract::path_text;

use super::CheckpointError;
use super::digest::not_finite;
use super::names::SHARED_INV_FREQ;
use super::parameters::inv_freq_name;
use super::stored::Stored;
use crate::ModelConfig;
use crate::rope::default_inv_freq;

/// The checkpoint's own frequencies, `(head_dim/2)` for each layer.
///
/// ESM-2 was trained with frequencies rounded to f16, and the rounded ones are in its checkpoints: at position 1000
/// exact ones differ by up to 0.16 radian. So they are computed only where there are none, with a warning.
pub(super) fn read_frequencies(
    folder: &Path,
    config: &ModelConfig,
    stored: &Stored,
) -> Result<Vec<Vec<f32>>, CheckpointError> {
    let mut absent = 0;
    let layers = (0..config.layers)
        .map(|layer| {
            let own = inv_freq_name(layer);
            let name = [own.as_str(), SHARED_INV_FREQ]
                .into_iter()
                .find(|name| stored.has(name));
            if let Some(name) = name {
                let entry = stored.entry(name);
                let wrong = not_finite(name, entry, 0, &entry.view.bytes(0..entry.view.len()));
                return wrong.map_or_else(|| Ok(entry.values()), Err);
            }
            absent += 1;
            Ok(default_inv_freq(config.head_dim()))
        })
        .collect::<Result<_, _>>()?;
    if absent > 0 {
        tracing::warn!(
            "{}: no inv_freq for {absent} of {} layers: computed them; the published ESM-2 have theirs rounded to f16, \
             which shifts the vectors of long sequences",
            path_text(folder),
            config.layers,
        );
    }
    Ok(layers)
}
