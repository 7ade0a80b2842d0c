//! Biases that make up for the rounding of weights to e4m3.
//!
//! Rounding changes a product by `E·x`. Over the tokens of a protein `x` varies about a mean that differs little between proteins. So
//! the product of the mean goes into the bias, at no cost for a batch. Where a normalisation gives `x`, its bias gives up the mean:
//! what is rounded is smaller then.

use plmkit_contract::tokenize;
use plmkit_esm2::{EsmError, Varlen};
use plmkit_kit::Stop;
use tch::{Kind, Tensor};

use crate::CudaError;
use crate::device_batch::DeviceBatch;
use crate::encoder::Observer;
use crate::fp8::Input;
use crate::model::TorchModel;

/// Proteins of many kinds of organisms, 1,761 tokens: entries of UniProt (CC BY 4.0). With others, vectors in fp8 would have other bits.
const PROTEINS: &str = include_str!("proteins.fasta");

/// Measures the mean inputs of all products in fp8, and puts their products into the biases.
pub(crate) fn compensate(model: &mut TorchModel) -> Result<(), CudaError> {
    let (mut tokens, mut offsets) = (Vec::new(), vec![0]);
    for residues in PROTEINS.lines().filter(|line| !line.starts_with('>')) {
        tokenize(residues.as_bytes(), &mut tokens).expect("proteins that are part of the program");
        offsets.push(tokens.len() as i32);
    }
    let batch = Varlen::new(&tokens, &offsets).expect("complete sequences");
    // f32: by the weights that are not rounded.
    let (batch, _) = DeviceBatch::new(batch, Kind::Float, &model.transfer, false)?;
    let mut observer = MeanInputs {
        of_layers: Vec::new(),
        stop: &model.stop,
    };
    let x = model.encoder.embed(&model.embedding, &batch)?;
    let layers = model.encoder.layers.len();
    (model.encoder).forward(x, &batch, layers, &mut observer)?;
    for (layer, means) in model.encoder.layers.iter_mut().zip(observer.of_layers) {
        let [of_qkv, of_up, of_down] = &means[..] else {
            unreachable!("each layer shows three inputs");
        };
        layer.qkv.compensate(of_qkv, true)?;
        layer.up.compensate(of_up, true)?;
        layer.down.compensate(of_down, false)?;
        let norms = [(&layer.attention_norm, of_qkv), (&layer.ffn_norm, of_up)];
        let [before_attention, before_ffn] = norms.map(|(norm, mean)| norm.without(mean));
        layer.fp8_norms = Some([before_attention?, before_ffn?]);
    }
    Ok(())
}

/// Keeps the mean of each input of a product, `(in)` f32.
struct MeanInputs<'a> {
    /// Of each layer those of its products, in their order.
    of_layers: Vec<Vec<Tensor>>,
    stop: &'a Stop,
}

impl Observer for MeanInputs<'_> {
    fn hidden(&mut self, _layer: usize, _x: &Tensor) -> Result<(), CudaError> {
        if self.stop.requested() {
            return Err(EsmError::Stopped.into());
        }
        Ok(())
    }

    fn attention(&mut self, _qkv: &Tensor) -> Result<(), CudaError> {
        Ok(())
    }

    fn product(&mut self, layer: usize, input: &Input) -> Result<(), CudaError> {
        let mean = input
            .values()
            .f_mean_dim([0].as_slice(), false, Kind::Float)?;
        self.of_layers.resize_with(layer + 1, Vec::new);
        self.of_layers[layer].push(mean);
        Ok(())
    }
}
