//! The number of rows for each part of the screen.

/// The number of items that are shown, and their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// GPUs.
    pub(super) gpus: usize,
    /// Rows of each GPU: one has figures, the second bars, and all others the history.
    pub(super) gpu_rows: usize,
    /// Processes, under a heading.
    pub(super) processes: usize,
    /// Runs, under a heading.
    pub(super) runs: usize,
    /// Rows of each run: one has the progress, the second the throughput.
    pub(super) run_rows: usize,
    /// Messages.
    pub(super) notes: usize,
}

/// Rows of the title and the host.
const TOP_ROWS: usize = 2;

/// A taller history shows nothing more.
pub(super) const MAX_GPU_ROWS: usize = 8;

pub(super) const MAX_RUN_ROWS: usize = 2;

type Part = fn(&mut Plan) -> &mut usize;

/// Parts of the screen, the most important first, each with the counts that it goes through: every item gets a row, then
/// the more important items get a second row, then the rest is shared out.
const STEPS: [(Part, usize, usize); 12] = [
    // A run gets a row before the last of many GPUs.
    (|plan| &mut plan.gpus, 1, 4),
    (|plan| &mut plan.runs, 1, 1),
    (|plan| &mut plan.gpus, 1, usize::MAX),
    (|plan| &mut plan.runs, 1, 4),
    (|plan| &mut plan.notes, 1, 1),
    (|plan| &mut plan.gpu_rows, 2, 2),
    (|plan| &mut plan.run_rows, 2, 2),
    (|plan| &mut plan.processes, 4, 4),
    (|plan| &mut plan.gpu_rows, 3, 3),
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
                    return plan;
                }
                plan = next;
            }
        }
        plan
    }

    fn height(&self) -> usize {
        let list = |items: usize, rows: usize| items * rows + usize::from(items > 0);
        TOP_ROWS
            + self.gpus * self.gpu_rows
            + list(self.processes, 1)
            + list(self.runs, self.run_rows)
            + self.notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(height: u16, [gpus, processes, runs]: [usize; 3], note: bool) -> Plan {
        let whole = Plan {
            gpus,
            gpu_rows: MAX_GPU_ROWS,
            processes,
            runs,
            run_rows: MAX_RUN_ROWS,
            notes: usize::from(note),
        };
        Plan::new(height, &whole)
    }

    #[test]
    fn a_small_screen_shows_the_most_important_items_and_a_tall_one_longer_history() {
        for (height, gpus, gpu_rows, processes, runs, run_rows) in [
            (0, 0, 1, 0, 0, 1),
            (8, 4, 1, 0, 1, 1),
            (24, 4, 3, 3, 2, 2),
            (60, 4, 8, 3, 2, 2),
        ] {
            let expected = Plan {
                gpus,
                gpu_rows,
                processes,
                runs,
                run_rows,
                notes: 0,
            };
            assert_eq!(plan(height, [4, 3, 2], false), expected, "{height}");
        }
    }

    #[test]
    fn no_plan_is_higher_than_the_screen() {
        for height in 2..80 {
            for items in [[0, 0, 0], [0, 0, 9], [1, 40, 1], [16, 16, 16], [4, 3, 2]] {
                let plan = plan(height, items, true);
                assert!(plan.height() <= usize::from(height), "{height}: {plan:?}");
            }
        }
    }
}
