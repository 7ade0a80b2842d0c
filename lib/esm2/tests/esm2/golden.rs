//! Every layer against Hugging Face transformers and fair-esm.

use std::collections::BTreeMap;
use std::fs;

use plmkit_contract::Pooling;
use plmkit_esm2::Esm2;
use safetensors::SafeTensors;

use crate::support::{
    Pack, Protein, ROUNDING, cosine, model_tiny, protein, relative_error, test_data,
};

/// The libraries whose outputs are stored.
const REFERENCES: [&str; 2] = ["transformers", "fair-esm"];

/// The stored outputs of a library: `<accession>/layer_<i>` is `(tokens, hidden)`, `<accession>/mean_<N>` `(hidden)`.
pub struct Golden {
    tensors: BTreeMap<String, Vec<f32>>,
}

impl Golden {
    pub fn of(library: &str) -> Self {
        let bytes = fs::read(test_data(&format!("golden/{library}.safetensors"))).unwrap();
        let tensors = SafeTensors::deserialize(&bytes)
            .unwrap()
            .tensors()
            .into_iter()
            .map(|(name, view)| {
                let values = view
                    .data()
                    .chunks_exact(4)
                    .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
                (name, values.collect())
            });
        Self {
            tensors: tensors.collect(),
        }
    }

    /// The proteins that there are outputs of.
    pub fn proteins(&self) -> Vec<Protein> {
        let names = self
            .tensors
            .keys()
            .filter_map(|name| name.strip_suffix("/layer_0"));
        let proteins: Vec<Protein> = names.map(protein).collect();
        assert!(proteins.len() >= 5);
        proteins
    }

    pub fn layer(&self, protein: &Protein, layer: usize) -> &[f32] {
        &self.tensors[&format!("{}/layer_{layer}", protein.accession)]
    }

    pub fn mean(&self, protein: &Protein, layer: usize) -> &[f32] {
        &self.tensors[&format!("{}/mean_{layer}", protein.accession)]
    }

    /// The largest error of any layer of any protein when they are computed in these packs.
    pub fn worst_layer_error<'a>(
        &self,
        model: &Esm2,
        packs: impl IntoIterator<Item = &'a [Protein]>,
    ) -> f64 {
        let hidden = model.info().config().hidden;
        let mut worst = 0.0;
        for proteins in packs {
            let pack = Pack::of(proteins.iter().map(|protein| protein.tokens.as_slice()));
            for (layer, values) in pack.layers(model).iter().enumerate() {
                for (i, protein) in proteins.iter().enumerate() {
                    let found = &values[pack.values(i, hidden)];
                    // The last token has no output.
                    let expected = &self.layer(protein, layer)[..found.len()];
                    worst = f64::max(worst, relative_error(found, expected, hidden));
                }
            }
        }
        worst
    }
}

#[test]
fn every_layer_agrees_packed_and_alone() {
    let model = model_tiny();
    for library in REFERENCES {
        let golden = Golden::of(library);
        let proteins = golden.proteins();
        let packed = golden.worst_layer_error(&model, [proteins.as_slice()]);
        let alone = golden.worst_layer_error(&model, proteins.chunks(1));
        println!("{library}: worst layer error packed {packed:.1e}, alone {alone:.1e}");
        assert!(packed <= ROUNDING && alone <= ROUNDING);
    }
}

#[test]
fn mean_vectors_agree() {
    let model = model_tiny();
    let (layers, hidden) = (model.info().config().layers, model.info().config().hidden);
    for library in REFERENCES {
        let golden = Golden::of(library);
        let proteins = golden.proteins();
        let pack = Pack::of(proteins.iter().map(|protein| protein.tokens.as_slice()));
        let (mut lowest, mut worst) = (1.0, 0.0);
        for (protein, mean) in proteins.iter().zip(pack.pooled(&model, Pooling::Mean)) {
            let expected = golden.mean(protein, layers);
            lowest = f64::min(lowest, cosine(&mean, expected));
            worst = f64::max(worst, relative_error(&mean, expected, hidden));
        }
        println!(
            "{library}: lowest cosine 1 - {:.1e}, worst error {worst:.1e}",
            1.0 - lowest
        );
        assert!(lowest >= 0.999_999 && worst <= ROUNDING);
    }
}
