//! Ids that are asked for.

use std::collections::HashSet;

/// The most ids that are looked up in the filters of row groups: of more, one is in nearly every row group, or seems to be.
const FEW: usize = 200;

/// Ids of proteins, each once.
#[derive(Clone, Debug, Default)]
pub struct AskedIds {
    ids: HashSet<String>,
    /// The ids in the order in which they were asked.
    order: Vec<String>,
}

impl AskedIds {
    /// Adds an id. Returns false if it was asked before.
    pub fn add(&mut self, id: &str) -> bool {
        let is_new = self.ids.insert(id.to_owned());
        if is_new {
            self.order.push(id.to_owned());
        }
        is_new
    }

    /// Whether an id is asked.
    pub fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Returns the ids in the order in which they were asked.
    pub fn in_order(&self) -> &[String] {
        &self.order
    }

    /// Iterates over the ids, if they are few enough to look each up.
    pub(crate) fn few(&self) -> Option<impl Iterator<Item = &str>> {
        (self.order.len() <= FEW).then(|| self.order.iter().map(String::as_str))
    }
}
