//! Layers of libtorch's operations, on any device that it has.

use tch::Tensor;

use super::{Body, Watch};
use crate::EsmError;
use crate::attention::Attention;
use crate::layer::Layer;
use crate::packed::Packed;
use crate::profile::Work;
use crate::rope::Rotation;

/// Parameters as tensors.
#[derive(Debug)]
pub(crate) struct OnLibtorch {
    layers: Vec<Layer>,
    heads: usize,
    attention: Box<dyn Attention>,
}

impl OnLibtorch {
    pub(crate) fn new(layers: Vec<Layer>, heads: usize, attention: Box<dyn Attention>) -> Self {
        Self {
            layers,
            heads,
            attention,
        }
    }
}

impl Body for OnLibtorch {
    fn kernels(&self) -> String {
        "libtorch".to_owned()
    }

    fn forward(
        &self,
        mut x: Tensor,
        batch: &Packed,
        depth: usize,
        watch: &mut dyn Watch,
    ) -> Result<(), EsmError> {
        batch.lap(Work::Embedding)?;
        watch.hidden(0, &|| Ok(x.shallow_clone()))?;
        let mut rotation = Rotation::new(&batch.positions, &self.layers[0].inv_freq)?;
        for (layer, number) in self.layers[..depth].iter().zip(1..) {
            // Every layer has the same frequencies in the published checkpoints, but each stores its own.
            if !rotation.is_of(&layer.inv_freq) {
                rotation = Rotation::new(&batch.positions, &layer.inv_freq)?;
            }
            layer.forward(
                &mut x,
                self.heads,
                &rotation,
                self.attention.as_ref(),
                batch,
                watch,
            )?;
            watch.hidden(number, &|| Ok(x.shallow_clone()))?;
        }
        Ok(())
    }
}
