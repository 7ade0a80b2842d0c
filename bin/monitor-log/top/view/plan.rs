//! The number of rows for each part of the screen.

/// The number of items that are shown, and their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The line of the host.
    pub(super) host: usize,
    /// GPUs.
    pub(super) gpus: usize,
    /// Rows of each GPU: one has figures, the second names, and all others the history.
    pub(super) gpu_rows: usize,
    /// Processes, under a heading of their own.
    pub(super) processes: usize,
    /// Runs.
    pub(super) runs: usize,
    /// Rows of each run: one has the progress, the second the figures.
    pub(super) run_rows: usize,
    /// The heading of the runs.
    pub(super) headings: usize,
    /// The line of the keys.
    pub(super) keys: usize,
}

/// Rows of the title.
const TOP_ROWS: usize = 1;

/// A taller history shows nothing more.
pub(super) const MAX_GPU_ROWS: usize = 8;

pub(super) const MAX_RUN_ROWS: usize = 2;

type Part = fn(&mut Plan) -> &mut usize;

/// Parts of the screen, the most important first, each with the counts that it goes through: every item gets a row, then
/// the more important items get a second row, then the rest is shared out.
const STEPS: [(Part, usize, usize); 13] = [
    // A run gets a row before the last of many GPUs.
    (|plan| &mut plan.gpus, 1, 4),
    (|plan| &mut plan.runs, 1, 1),
    (|plan| &mut plan.gpus, 1, usize::MAX),
    (|plan| &mut plan.runs, 1, 4),
    (|plan| &mut plan.keys, 1, 1),
    (|plan| &mut plan.headings, 1, 1),
    (|plan| &mut plan.processes, 4, 4),
    (|plan| &mut plan.host, 1, 1),
    (|plan| &mut plan.run_rows, 2, 2),
    (|plan| &mut plan.gpu_rows, 2, 3),
    (|plan| &mut plan.processes, 1, usize::MAX),
    (|plan| &mut plan.runs, 1, usize::MAX),
    (|plan| &mut plan.gpu_rows, 4, usize::MAX),
];

impl Plan {
    /// Goes through the steps while they fit. `whole` has all items, and the most rows of each.
    pub(super) fn new(height: u16, whole: &Self) -> Self {
        let mut plan = Self {
            gpu_rows: 1,
            run_rows: 1,
            ..Self::default()
        };
        for (part, from, to) in STEPS {
            let most = *part(&mut { *whole });
            for count in from.min(most)..=to.min(most) {
                let mut next = plan;
                let shown = part(&mut next);
                *shown = count.max(*shown);
                if next.height() > usize::from(height) {
                    break;
                }
                plan = next;
            }
        }
        plan
    }

    fn height(&self) -> usize {
        let one = |items: usize| usize::from(items > 0);
        TOP_ROWS
            + self.host
            + self.gpus * self.gpu_rows
            + self.processes
            + one(self.processes)
            + self.runs * self.run_rows
            + self.headings * one(self.runs)
            + self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(height: u16, [gpus, processes, runs]: [usize; 3]) -> Plan {
        let whole = Plan {
            host: 1,
            gpus,
            gpu_rows: MAX_GPU_ROWS,
            processes,
            runs,
            run_rows: MAX_RUN_ROWS,
            headings: 1,
            keys: 1,
        };
        Plan::new(height, &whole)
    }

    #[test]
    fn a_small_screen_shows_the_most_important_items_and_a_tall_one_longer_history() {
        for (height, gpus, gpu_rows, processes, runs, run_rows, others) in [
            (0, 0, 1, 0, 0, 1, [0, 0, 0]),
            (6, 4, 1, 0, 1, 1, [0, 0, 0]),
            (8, 4, 1, 0, 2, 1, [0, 0, 1]),
            (24, 4, 3, 3, 2, 2, [1, 1, 1]),
            (60, 4, 8, 3, 2, 2, [1, 1, 1]),
        ] {
            let [host, headings, keys] = others;
            let expected = Plan {
                host,
                gpus,
                gpu_rows,
                processes,
                runs,
                run_rows,
                headings,
                keys,
            };
            assert_eq!(plan(height, [4, 3, 2]), expected, "{height}");
        }
    }

    #[test]
    fn no_plan_is_higher_than_the_screen() {
        for height in 2..80 {
            for items in [[0, 0, 0], [0, 0, 9], [1, 40, 1], [16, 16, 16], [4, 3, 2]] {
                let plan = plan(height, items);
                assert!(plan.height() <= usize::from(height), "{height}: {plan:?}");
            }
        }
    }
}
