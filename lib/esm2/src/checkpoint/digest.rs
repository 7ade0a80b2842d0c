//! The identity of a model.

use blake3::Hasher;
use plmkit_contract::Stop;

use super::parameters::{Parameter, head_parameters, parameters};
use super::stored::Stored;
use crate::{Config, EsmError, Head};

/// BLAKE3, 128 bits in hexadecimal, over the configuration, every encoder tensor as it is stored (name, type, shape,
/// bytes, in the order of computation) and the rotary frequencies in use.
pub(super) fn digest(
    config: &Config,
    stored: &Stored,
    frequencies: &[Vec<f32>],
    stop: &Stop,
) -> Result<String, EsmError> {
    let mut hasher = Hasher::new();
    hasher.update(b"plmkit esm2 encoder\0");
    for size in [
        config.layers,
        config.hidden,
        config.heads,
        config.intermediate,
    ] {
        number(&mut hasher, size);
    }
    hasher.update(&config.layer_norm_eps.to_le_bytes());
    hasher.update(&[u8::from(config.token_dropout)]);
    tensors(&mut hasher, stored, parameters(config), stop)?;
    for frequency in frequencies.iter().flatten() {
        hasher.update(&frequency.to_le_bytes());
    }
    Ok(short(&hasher))
}

/// BLAKE3, 128 bits in hexadecimal, over the tensors of a head as they are stored.
pub(super) fn head_digest(
    config: &Config,
    stored: &Stored,
    head: Head,
    stop: &Stop,
) -> Result<String, EsmError> {
    let mut hasher = Hasher::new();
    tensors(&mut hasher, stored, head_parameters(config, head), stop)?;
    Ok(short(&hasher))
}

fn tensors(
    hasher: &mut Hasher,
    stored: &Stored,
    parameters: Vec<Parameter>,
    stop: &Stop,
) -> Result<(), EsmError> {
    for parameter in parameters {
        if stop.requested() {
            return Err(EsmError::Stopped);
        }
        stored.read(&parameter.name, |view| {
            text(hasher, &parameter.name);
            text(hasher, &view.dtype().to_string());
            number(hasher, view.shape().len());
            for &size in view.shape() {
                number(hasher, size);
            }
            hasher.update(&view.bytes());
        });
    }
    Ok(())
}

fn short(hasher: &Hasher) -> String {
    hasher.finalize().to_hex()[..32].to_owned()
}

fn number(hasher: &mut Hasher, value: usize) {
    hasher.update(&(value as u64).to_le_bytes());
}

fn text(hasher: &mut Hasher, value: &str) {
    number(hasher, value.len());
    hasher.update(value.as_bytes());
}
