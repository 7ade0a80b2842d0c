//! The digest of a model: BLAKE3 of everything that its vectors depend on.

use blake3::Hasher;
use plmkit_contract::Stop;

use super::parameters::parameters;
use super::tensors::CheckpointTensors;
use crate::config::Architecture;
use crate::error::EsmError;
use crate::heads::Head;

/// The bytes that are hashed and checked while they are in a cache.
const PIECE: usize = 1 << 21;

/// Returns the digest of a model: of the configuration, the name, type, shape and stored bytes of every encoder tensor in the order of
/// computation, and the rotary frequencies. Fails if a weight is not finite.
pub(super) fn digest_of_model(
    tensors: &CheckpointTensors,
    stop: &Stop,
) -> Result<String, EsmError> {
    let config = tensors.config();
    let mut hasher = Hasher::new();
    if config.architecture == Architecture::ESM2 {
        hasher.update(b"plmkit esm2 encoder\0");
    } else {
        let architecture = serde_json::to_string(&config.architecture).unwrap_or_default();
        hasher.update(format!("plmkit encoder\0{architecture}\0").as_bytes());
    }
    for size in [
        config.layers,
        config.hidden,
        config.heads,
        config.intermediate,
    ] {
        update_number(&mut hasher, size);
    }
    hasher.update(&config.layer_norm_eps.to_le_bytes());
    hasher.update(&[u8::from(config.token_dropout)]);
    update(&mut hasher, tensors, parameters(config), stop)?;
    for layer in 0..config.layers {
        if let Some((name, stored)) = tensors.stored_frequencies(layer) {
            stored.check_finite(&name, 0, &stored.bytes())?;
        }
        for frequency in tensors.frequencies(layer) {
            hasher.update(&frequency.to_le_bytes());
        }
    }
    Ok(text(&hasher))
}

/// Returns the digest of the stored tensors of a head. Fails if a weight is not finite.
pub(super) fn digest_of_head(
    tensors: &CheckpointTensors,
    head: Head,
    stop: &Stop,
) -> Result<String, EsmError> {
    let mut hasher = Hasher::new();
    update(&mut hasher, tensors, tensors.head_parameters(head), stop)?;
    Ok(text(&hasher))
}

/// Adds tensors, on the threads of the current pool.
fn update(
    hasher: &mut Hasher,
    tensors: &CheckpointTensors,
    parameters: Vec<(String, Vec<usize>)>,
    stop: &Stop,
) -> Result<(), EsmError> {
    for (name, shape) in parameters {
        if stop.requested() {
            return Err(EsmError::Stopped);
        }
        let tensor = tensors.get(&name);
        for word in [&name, &tensor.dtype.to_string()] {
            update_number(hasher, word.len());
            hasher.update(word.as_bytes());
        }
        update_number(hasher, shape.len());
        for size in shape {
            update_number(hasher, size);
        }
        for (number, piece) in tensor.bytes().chunks(PIECE).enumerate() {
            let (_, finite) = rayon::join(
                || hasher.update_rayon(piece),
                || tensor.check_finite(&name, number * PIECE, piece),
            );
            finite?;
        }
        tensor.release();
    }
    Ok(())
}

fn update_number(hasher: &mut Hasher, value: usize) {
    hasher.update(&(value as u64).to_le_bytes());
}

/// Returns 128 bits in hexadecimal.
fn text(hasher: &Hasher) -> String {
    hasher.finalize().to_hex()[..32].to_owned()
}
