//! Every layer against Hugging Face transformers and fair-esm.

use std::collections::BTreeMap;
use std::fs;

use plmkit_contract::{Column, Pooling};
use plmkit_esm2::{Dtype, Esm2};
use plmkit_kit::Stop;
use safetensors::SafeTensors;

use crate::support::{Pack, Protein, ROUNDING, cosine, load, protein, relative_error, test_data};

/// The stored outputs: each with its model and the number of its proteins.
const GOLDENS: [(&str, &str, usize); 5] = [
    ("transformers", "model-tiny", 5),
    ("fair-esm", "model-tiny", 5),
    ("esmc", "model-tiny-esmc", 2),
    ("1b", "model-tiny-1b", 2),
    ("1v", "model-tiny-1v", 2),
];

/// The stored outputs of a model: `<accession>/layer_<i>` is `(tokens, hidden)`, `<accession>/mean_<N>` `(hidden)`.
pub struct Golden {
    tensors: BTreeMap<String, Vec<f32>>,
}

impl Golden {
    pub fn of(name: &str) -> Self {
        let bytes = fs::read(test_data(&format!("golden/{name}.safetensors"))).unwrap();
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
        names.map(protein).collect()
    }

    /// The logits of the residues of a protein.
    fn logits(&self, protein: &Protein, vocabulary: usize) -> &[f32] {
        let values = &self.tensors[&format!("{}/logits", protein.accession)];
        // Some have those of <cls> and <eos> around them.
        let others = values.len() - (protein.tokens.len() - 2) * vocabulary;
        &values[others / 2..values.len() - others / 2]
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

/// Calls `compare` with the name of each golden file, with its outputs and its proteins, and with its model.
fn for_each(compare: impl Fn(&str, &Golden, &[Protein], &Esm2)) {
    for (name, model, count) in GOLDENS {
        let golden = Golden::of(name);
        let proteins = golden.proteins();
        assert_eq!(proteins.len(), count, "{name}");
        compare(name, &golden, &proteins, &load(&test_data(model)).unwrap());
    }
}

#[test]
fn every_layer_agrees_packed_and_alone() {
    for_each(|name, golden, proteins, model| {
        let packed = golden.worst_layer_error(model, [proteins]);
        let alone = golden.worst_layer_error(model, proteins.chunks(1));
        println!("{name}: worst layer error packed {packed:.1e}, alone {alone:.1e}");
        assert!(packed <= ROUNDING && alone <= ROUNDING);
    });
}

#[test]
fn mean_vectors_agree() {
    for_each(|name, golden, proteins, model| {
        let (layers, hidden) = (model.info().config().layers, model.info().config().hidden);
        let pack = Pack::of(proteins.iter().map(|protein| protein.tokens.as_slice()));
        let (mut lowest, mut worst) = (1.0, 0.0);
        for (protein, mean) in proteins.iter().zip(pack.pooled(model, Pooling::Mean)) {
            let expected = golden.mean(protein, layers);
            lowest = f64::min(lowest, cosine(&mean, expected));
            worst = f64::max(worst, relative_error(&mean, expected, hidden));
        }
        println!(
            "{name}: lowest cosine 1 - {:.1e}, worst error {worst:.1e}",
            1.0 - lowest
        );
        assert!(lowest >= 0.999_999 && worst <= ROUNDING);
    });
}

#[test]
fn heads_agree() {
    for_each(|name, golden, proteins, model| {
        let vocabulary = model.info().config().vocabulary;
        for protein in proteins {
            let residues = protein.tokens.len() - 2;
            let pack = Pack::of([protein.tokens.as_slice()]);
            let embed = |column| {
                let stop = Stop::default();
                let values = model.embed(pack.batch(), &[column], Dtype::F32, &stop);
                values.unwrap().remove(0).to_vec()
            };
            let expected = golden.logits(protein, vocabulary);
            let logits = relative_error(&embed(Column::Logits), expected, vocabulary);
            let expected = golden
                .tensors
                .get(&format!("{}/contacts", protein.accession));
            let contacts = expected.map(|expected| {
                assert_eq!(expected.len(), residues * residues);
                relative_error(&embed(Column::Contacts), expected, 1)
            });
            println!("{name}: error of logits {logits:.1e}, of contacts {contacts:?}");
            assert!(logits <= ROUNDING && contacts.is_none_or(|error| error <= ROUNDING));
            assert_eq!(contacts.is_none(), name == "esmc");
        }
    });
}
