//! The number of rows for each part of the screen.

/// The number of items to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contents {
    pub(super) gpus: usize,
    pub(super) processes: usize,
    pub(super) runs: usize,
    pub(super) note: bool,
}

/// The number of items that are shown, and their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Whether there is a row for a message.
    pub(super) note: bool,
}

/// Rows of the title and the host.
const TOP_ROWS: usize = 2;

/// A taller history shows nothing more.
const MAX_GPU_ROWS: usize = 8;

impl Plan {
    const NOTHING: Self = Self {
        gpus: 0,
        gpu_rows: 1,
        processes: 0,
        runs: 0,
        run_rows: 1,
        note: false,
    };

    /// Gives each item a row, then the more important items a second row, then shares out the rest.
    pub(super) fn new(height: u16, contents: &Contents) -> Self {
        let height = usize::from(height);
        let mut plan = Self::NOTHING;
        let mut steps: Vec<Self> = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            change(&mut plan);
            steps.push(plan);
        };
        // A run gets a row before the last of many GPUs.
        for gpus in 0..=contents.gpus.min(4) {
            step(&|plan| plan.gpus = gpus);
        }
        step(&|plan| plan.runs = contents.runs.min(1));
        for gpus in 0..=contents.gpus {
            step(&|plan| plan.gpus = plan.gpus.max(gpus));
        }
        for runs in 0..=contents.runs.min(4) {
            step(&|plan| plan.runs = plan.runs.max(runs));
        }
        step(&|plan| plan.note = contents.note);
        step(&|plan| plan.gpu_rows = 2);
        step(&|plan| plan.run_rows = 2);
        step(&|plan| plan.processes = contents.processes.min(4));
        step(&|plan| plan.gpu_rows = 3);
        for processes in 0..=contents.processes {
            step(&|plan| plan.processes = plan.processes.max(processes));
        }
        for runs in 0..=contents.runs {
            step(&|plan| plan.runs = plan.runs.max(runs));
        }
        for rows in 4..=MAX_GPU_ROWS {
            step(&|plan| plan.gpu_rows = rows);
        }
        // The last step that fits. Each step needs at least as many rows as the one before.
        steps
            .into_iter()
            .take_while(|step| step.height() <= height)
            .last()
            .unwrap_or(Self::NOTHING)
    }

    fn height(&self) -> usize {
        let list = |items: usize, rows: usize| items * rows + usize::from(items > 0);
        TOP_ROWS
            + self.gpus * self.gpu_rows
            + list(self.processes, 1)
            + list(self.runs, self.run_rows)
            + usize::from(self.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(height: u16, [gpus, processes, runs]: [usize; 3], note: bool) -> Plan {
        let contents = Contents {
            gpus,
            processes,
            runs,
            note,
        };
        Plan::new(height, &contents)
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
                note: false,
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
