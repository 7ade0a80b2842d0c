//! Batch invariance: a protein's vectors do not depend on its batch.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use plmkit_contract::{Column, Pooling};
use plmkit_esm2::{Dtype, Esm2, set_threads};
use plmkit_kit::{Exit, Failure, Stop};

use crate::support::{Pack, Protein, model_tiny, proteins, relative_error};

/// How far two computations of one protein in f32 may be apart: not by a bit.
const SAME: f64 = 0.0;

/// The last layer of each protein, by accession, when they are computed in these packs.
fn last_layers<'a>(
    model: &Esm2,
    packs: impl IntoIterator<Item = Vec<&'a Protein>>,
) -> BTreeMap<&'a str, Vec<f32>> {
    let (layers, hidden) = (model.info().config().layers, model.info().config().hidden);
    let mut found = BTreeMap::new();
    for proteins in packs {
        let pack = Pack::of(proteins.iter().map(|protein| protein.tokens.as_slice()));
        let last = pack.layers(model).swap_remove(layers);
        for (i, protein) in proteins.iter().enumerate() {
            found.insert(
                protein.accession.as_str(),
                last[pack.values(i, hidden)].to_vec(),
            );
        }
    }
    found
}

/// The largest relative error of a protein's vectors among other batch mates, orders and threads, against those of the protein
/// alone on one thread.
fn worst_of(model: &Esm2) -> f64 {
    let hidden = model.info().config().hidden;
    let proteins = proteins();
    set_threads(NonZeroUsize::MIN);
    let alone = last_layers(model, proteins.iter().map(|protein| vec![protein]));
    assert_eq!(alone.len(), 100);
    let all = || proteins.iter().collect::<Vec<_>>();
    let reversed = || proteins.iter().rev().collect::<Vec<_>>();
    let sevens = || proteins.chunks(7).map(|chunk| chunk.iter().collect());
    let mut worst = 0.0;
    let mut compare = |what: &str, other: BTreeMap<&str, Vec<f32>>| {
        let errors = alone
            .iter()
            .map(|(name, alone)| relative_error(&other[name], alone, hidden));
        let error = errors.fold(0.0, f64::max);
        println!("alone on 1 thread against {what}: {error:.1e}");
        worst = f64::max(worst, error);
    };
    compare(
        "all in one, reversed, 1 thread",
        last_layers(model, [reversed()]),
    );
    set_threads(NonZeroUsize::new(2).unwrap());
    compare("all in one, 2 threads", last_layers(model, [all()]));
    compare("by sevens, 2 threads", last_layers(model, sevens()));
    worst
}

#[test]
fn batch_mates_order_and_threads_do_not_matter() {
    assert!(worst_of(&model_tiny()) <= SAME);
}

#[test]
fn columns_come_in_the_order_asked_for() {
    let model = model_tiny();
    let proteins = proteins();
    let pack = Pack::of(
        proteins[..5]
            .iter()
            .map(|protein| protein.tokens.as_slice()),
    );
    let columns = ["std_1", "mean_4", "bos_4", "max_0"].map(|name| name.parse::<Column>().unwrap());
    let together = model
        .embed(pack.batch(), &columns, Dtype::F32, &Stop::default())
        .unwrap();
    for (column, values) in columns.iter().zip(&together) {
        assert_eq!(values.len(), 5 * model.info().config().hidden);
        let alone = model
            .embed(pack.batch(), &[*column], Dtype::F32, &Stop::default())
            .unwrap();
        assert_eq!(&alone[0], values, "{column}");
    }
    assert_eq!(together[1][..], pack.pooled(&model, Pooling::Mean).concat());
    assert!(
        model
            .embed(pack.batch(), &[], Dtype::F32, &Stop::default())
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_layer_that_the_model_has_not_is_refused() {
    let model = model_tiny();
    let column = "mean_5".parse::<Column>().unwrap();
    let pack = Pack::of([[0, 5, 2].as_slice()]);
    let error = model
        .embed(pack.batch(), &[column], Dtype::F32, &Stop::default())
        .unwrap_err();
    assert_eq!(error.exit(), Exit::Usage);
    assert_eq!(error.to_string(), "layer 5 does not exist; expected 0 to 4");
}
