//! The columns that a run is asked for.

use std::str::FromStr;

use plmkit_kit::Fault;

use crate::{Column, Pooling};

/// How the scores of substitutions are computed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumMessage, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Scores {
    /// From the whole protein, in one pass
    WildType,
    /// Each residue from the others, while it is masked: a pass for each
    Masked,
}

/// The requested columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// Poolings over residues: a column for each pooling and layer.
    pub pools: Vec<Pooling>,
    /// The layers to store.
    pub layers: Layers,
    /// Whether to store per-residue vectors of these layers.
    pub residues: bool,
    /// Whether to store the logits of each residue.
    pub logits: bool,
    /// Whether to store predicted contacts.
    pub contacts: bool,
    /// How to compute log-probabilities of amino acids and their mean, if they are stored.
    pub scores: Option<Scores>,
}

/// The layers to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layers {
    /// The last layer, after the final `LayerNorm`.
    Last,
    /// Every layer, from 0, the token embedding.
    All,
    /// The listed layers, in this order; negative ones are counted from the end: -1 is the last.
    Listed(Vec<i64>),
}

/// The error of a layer that is asked for, and that a model with this last layer does not have.
pub fn no_such_layer(layer: i64, last: usize) -> Fault {
    Fault::usage(format!(
        "layer {layer} does not exist; expected 0 to {last}"
    ))
}

impl Outputs {
    /// Returns the columns of a model with `layers` layers, in file order, each once.
    pub fn columns(&self, layers: usize) -> Result<Vec<Column>, Fault> {
        let number = |&layer: &i64| {
            let from_end = || (layers + 1).checked_sub(layer.unsigned_abs() as usize);
            let number = usize::try_from(layer).ok().or_else(from_end);
            let number = number.filter(|&number| number <= layers);
            let number = number.map(|number| number as u32);
            number.ok_or_else(|| no_such_layer(layer, layers))
        };
        let wanted: Vec<u32> = match &self.layers {
            Layers::Last => vec![layers as u32],
            Layers::All => (0..=layers as u32).collect(),
            Layers::Listed(listed) => listed.iter().map(number).collect::<Result<_, _>>()?,
        };
        let mut columns: Vec<Column> = Vec::new();
        let mut add = |column| {
            if !columns.contains(&column) {
                columns.push(column);
            }
        };
        for &layer in &wanted {
            for &pool in &self.pools {
                add(Column::Pooled { pool, layer });
            }
        }
        if self.residues {
            wanted.into_iter().map(Column::Residues).for_each(&mut add);
        }
        if self.logits {
            add(Column::Logits);
        }
        if self.contacts {
            add(Column::Contacts);
        }
        if self.scores.is_some() {
            add(Column::LogProbs);
            add(Column::LogLikelihood);
        }
        Ok(columns)
    }
}

impl FromStr for Layers {
    type Err = String;

    /// Reads `last`, `all`, or layer numbers such as `6,33` or `-1,0`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "last" | "-1" => return Ok(Self::Last),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let listed = text.split(',').map(|layer| match layer.trim() {
            alone @ ("last" | "all") => Err(format!(
                "'{alone}' stands alone: layers are listed by number"
            )),
            number => number.parse().map_err(|_| {
                format!("expected 'last', 'all' or layer numbers such as 6,33; found '{number}'")
            }),
        });
        listed.collect::<Result<_, _>>().map(Self::Listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_counted_from_the_start_or_from_the_end() {
        let columns = |text: &str| {
            let outputs = Outputs {
                pools: vec![Pooling::Mean],
                layers: text.parse().expect("layers"),
                residues: false,
                logits: false,
                contacts: false,
                scores: None,
            };
            let names = outputs.columns(33);
            names.map(|columns| columns.iter().map(Column::to_string).collect::<Vec<_>>())
        };
        for (text, expected) in [
            ("last", &["mean_33"][..]),
            ("-1", &["mean_33"]),
            ("33,-1", &["mean_33"]),
            ("-2, 0", &["mean_32", "mean_0"]),
            ("-34", &["mean_0"]),
        ] {
            let expected = expected.iter().map(ToString::to_string).collect();
            assert_eq!(columns(text), Ok(expected), "{text}");
        }
        for layer in [34, -35, i64::MIN] {
            let expected = format!("layer {layer} does not exist; expected 0 to 33");
            assert_eq!(columns(&layer.to_string()), Err(Fault::usage(expected)));
        }
        for wrong in ["", "--1", "1.5", "-1,all"] {
            assert!(wrong.parse::<Layers>().is_err(), "{wrong}");
        }
    }
}
