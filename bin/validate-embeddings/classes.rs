//! The classes of proteins by which a map is coloured: of their lengths, or of a table of the user's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use plmkit_check::{MapPoint, MapSample};
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{path_text, plural};
use plmkit_store::open_input;
use tracing::warn;

/// Residues from which on a protein is in the next class.
const LENGTHS: [u32; 5] = [64, 128, 256, 512, 1024];

/// Classes of a table that have a colour of their own: the largest.
const COLOURED: usize = 5;

/// Which class each protein of a map is in.
pub(crate) struct Classes {
    /// What the classes are of.
    pub(crate) what: String,
    pub(crate) names: Vec<String>,
    /// The class by the id; none where lengths decide.
    by_id: Option<HashMap<String, usize>>,
}

impl Classes {
    /// Classes of lengths.
    pub(crate) fn of_lengths() -> Self {
        let mut names = vec![format!("below {}", LENGTHS[0])];
        let pairs = LENGTHS.windows(2);
        names.extend(pairs.map(|pair| format!("{} to {}", pair[0], pair[1] - 1)));
        names.extend(LENGTHS.last().map(|last| format!("{last} or more")));
        Self {
            what: "length in residues".to_owned(),
            names,
            by_id: None,
        }
    }

    /// The classes of the proteins of a map in a table: its column `id`, and the first other one.
    pub(crate) fn read(path: &Path, map: &MapSample) -> Result<Self, Fault> {
        let wanted: HashSet<&str> = map.ids().collect();
        let broken = |what: String| Fault::new(Exit::Data, format!("{}: {what}", path_text(path)));
        let tabs = path.extension().is_some_and(|extension| extension == "tsv");
        let mut table = csv::ReaderBuilder::new()
            .delimiter(if tabs { b'\t' } else { b',' })
            .from_reader(open_input(path)?);
        let header = table.headers().map_err(|error| broken(error.to_string()))?;
        let id = header.iter().position(|name| name == "id");
        let class = (0..header.len()).find(|&column| Some(column) != id);
        let (Some(id), Some(class)) = (id, class) else {
            let what = "expected a header with a column 'id' and one of classes";
            return Err(broken(what.to_owned()));
        };
        let what = header[class].to_owned();
        let mut class_of: HashMap<String, String> = HashMap::new();
        for line in table.records() {
            let line = line.map_err(|error| broken(error.to_string()))?;
            if wanted.contains(&line[id]) {
                class_of.insert(line[id].to_owned(), line[class].to_owned());
            }
        }
        if class_of.is_empty() && !wanted.is_empty() {
            let what = format!("has none of {}", plural(wanted.len(), "sampled protein"));
            warn!("{}: {what}", path_text(path));
        }
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for class in class_of.values() {
            *sizes.entry(class).or_default() += 1;
        }
        let mut names: Vec<&str> = sizes.keys().copied().collect();
        names.sort_by_key(|name| std::cmp::Reverse(sizes[name]));
        names.truncate(COLOURED);
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let place = |class: String| names.iter().position(|name| *name == class);
        let by_id = class_of.into_iter();
        let by_id = by_id.filter_map(|(id, class)| Some((id, place(class)?)));
        let by_id = by_id.collect();
        let others = ["others".to_owned()];
        Ok(Self {
            what,
            names: names.iter().cloned().chain(others).collect(),
            by_id: Some(by_id),
        })
    }

    /// The class of a point, by its place among the names.
    pub(crate) fn of(&self, point: &MapPoint) -> usize {
        match &self.by_id {
            Some(by_id) => by_id.get(point.id).copied().unwrap_or(self.names.len() - 1),
            None => LENGTHS
                .iter()
                .filter(|&&least| point.length >= least)
                .count(),
        }
    }
}
