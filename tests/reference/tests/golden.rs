//! The reference against the stored outputs of transformers and fair-esm, without libtorch.

use std::fs;
use std::path::PathBuf;

use plmkit_reference::{Checkpoint, Real, Reference, flat};
use safetensors::SafeTensors;

fn test_data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../test-data")
        .join(name)
}

fn tokens(accession: &str) -> Vec<u8> {
    let text = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
    let record = text
        .split('>')
        .find(|record| record.split('|').nth(1) == Some(accession))
        .expect("the protein");
    let residues = record.lines().skip(1).flat_map(str::bytes).map(|residue| {
        let place = b"LAGVSERTIDPKQNFYMHWCXBUZO"
            .iter()
            .position(|&known| known == residue);
        place.expect("a residue") as u8 + 4
    });
    [0].into_iter().chain(residues).chain([2]).collect()
}

/// The largest relative L2 error of any layer of any protein.
fn worst<T: Real>(library: &str) -> f64 {
    let bytes = fs::read(test_data(&format!("golden/{library}.safetensors"))).expect("golden");
    let golden = SafeTensors::deserialize(&bytes).expect("safetensors");
    let checkpoint = Checkpoint::read(&test_data("model-tiny")).expect("checkpoint");
    let model = Reference::<T>::new(checkpoint);
    let mut worst = 0.0;
    let mut compared = 0;
    for name in golden.names() {
        let Some(accession) = name.strip_suffix("/layer_0") else {
            continue;
        };
        let outputs = model.forward(&tokens(accession));
        for (layer, found) in outputs.layers.iter().enumerate() {
            let view = golden
                .tensor(&format!("{accession}/layer_{layer}"))
                .expect("a layer");
            let values = view.data().chunks_exact(4);
            let expected =
                values.map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes")));
            let (mut error, mut size) = (0.0, 0.0);
            for (found, expected) in flat(found).into_iter().zip(expected) {
                error += f64::from(found - expected).powi(2);
                size += f64::from(expected).powi(2);
            }
            worst = f64::max(worst, (error / size).sqrt());
            compared += 1;
        }
    }
    assert!(compared >= 5 * 5, "{compared}");
    println!("{library}: {worst:.1e}");
    worst
}

#[test]
fn every_layer_is_that_of_transformers_and_fair_esm() {
    for library in ["transformers", "fair-esm"] {
        assert!(worst::<f64>(library) < 5e-7, "{library}");
        assert!(worst::<f32>(library) < 1e-5, "{library}");
    }
}
