//! The model against ESM-2 written out in f64, for sequences that no golden file holds.

use plmkit_contract::Column;
use plmkit_esm2::Dtype;
use plmkit_kit::Stop;
use plmkit_reference::{Checkpoint, Matrix, Outputs, Real, Reference, flat};

use crate::support::{Pack, ROUNDING, model_tiny, proteins, relative_error, test_data};

/// model-tiny in f64.
pub fn oracle() -> Reference<f64> {
    Reference::new(Checkpoint::read(&test_data("model-tiny")).unwrap())
}

/// model-tiny in f32, with sums as they come: the measure of what rounding does.
fn plain() -> Reference<f32> {
    Reference::new(Checkpoint::read(&test_data("model-tiny")).unwrap())
}

/// Lengths from the shortest to one where exact frequencies would be 0.16 radian off.
#[test]
fn every_layer_agrees_for_short_and_long_proteins_in_one_pack() {
    let model = model_tiny();
    let hidden = model.info().config().hidden;
    let mut proteins = proteins();
    proteins.sort_by_key(|protein| protein.tokens.len());
    proteins.retain(|protein| protein.tokens.len() <= 1500);
    let picked: Vec<_> = proteins
        .iter()
        .step_by(proteins.len() / 6)
        .chain(proteins.last())
        .collect();
    let pack = Pack::of(picked.iter().map(|protein| protein.tokens.as_slice()));
    let found = pack.layers(&model);
    let columns = [Column::Residues(2), Column::Logits, Column::Contacts];
    let stop = Stop::default();
    let values = model.embed(pack.batch(), &columns, Dtype::F32, &stop);
    let values = values.unwrap();
    let mut values: Vec<_> = values.iter().map(|values| values.iter().copied()).collect();
    let (oracle, plain) = (oracle(), self::plain());
    let (mut worst, mut worst_head, mut worst_plain) = (0.0, 0.0, 0.0);
    for (i, protein) in picked.iter().enumerate() {
        let (expected, plain) = (
            oracle.forward(&protein.tokens),
            plain.forward(&protein.tokens),
        );
        for (found, expected) in found.iter().zip(&expected.layers) {
            let found = &found[pack.values(i, hidden)];
            // The last token has no output.
            let expected = &flat(expected)[..found.len()];
            worst = f64::max(worst, relative_error(found, expected, hidden));
        }
        let (expected, plain) = (by_column(&expected), by_column(&plain));
        let channels = [hidden, 33, 1];
        for (((values, expected), plain), channels) in
            values.iter_mut().zip(expected).zip(plain).zip(channels)
        {
            let found: Vec<f32> = values.take(expected.len()).collect();
            worst_head = f64::max(worst_head, relative_error(&found, &expected, channels));
            worst_plain = f64::max(worst_plain, relative_error(&plain, &expected, channels));
        }
    }
    assert!(values.iter_mut().all(|values| values.next().is_none()));
    let longest = picked
        .iter()
        .map(|protein| protein.tokens.len())
        .max()
        .unwrap();
    println!(
        "{} proteins of up to {longest} tokens: worst layer error {worst:.1e}; of residues, logits and contacts \
         {worst_head:.1e}, of the plain implementation {worst_plain:.1e}",
        picked.len()
    );
    assert!(longest > 1000 && worst <= ROUNDING);
    assert!(worst_head <= 2.0 * worst_plain);
}

/// What the columns of layer 2, of logits and of contacts hold.
fn by_column<T: Real>(outputs: &Outputs<T>) -> [Vec<f32>; 3] {
    let residues = |x: &Matrix<T>| flat(&x[1..x.len() - 1].to_vec());
    [
        residues(&outputs.layers[2]),
        residues(&outputs.logits),
        flat(&outputs.contacts),
    ]
}
