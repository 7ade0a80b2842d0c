//! How many rows each part of the screen gets.

/// What there is to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contents {
    pub(super) gpus: usize,
    pub(super) processes: usize,
    pub(super) runs: usize,
    pub(super) note: bool,
}

/// How much of it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// GPUs that are shown.
    pub(super) gpus: usize,
    /// Rows of each: one for all figures; two, with bars; three and more, with its history in the rest.
    pub(super) gpu_rows: usize,
    /// Processes that are shown, under a heading.
    pub(super) processes: usize,
    /// Runs that are shown, under a heading.
    pub(super) runs: usize,
    /// Rows of each: one with its progress; two, with its throughput.
    pub(super) run_rows: usize,
    /// Whether there is a row for what people should know.
    pub(super) note: bool,
}

/// The title and the host.
const ABOVE: usize = 2;

/// With more the history says no more.
const TALLEST_GPU: usize = 8;

impl Plan {
    const NOTHING: Self = Self {
        gpus: 0,
        gpu_rows: 1,
        processes: 0,
        runs: 0,
        run_rows: 1,
        note: false,
    };

    /// First each thing gets a row, then the more important of them a second, then what is left is shared out.
    pub(super) fn new(height: u16, contents: &Contents) -> Self {
        let height = usize::from(height);
        let mut plan = Self::NOTHING;
        let mut steps: Vec<Self> = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            change(&mut plan);
            steps.push(plan);
        };
        // What is at work has a row before the last of many GPUs has.
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
        for rows in 4..=TALLEST_GPU {
            step(&|plan| plan.gpu_rows = rows);
        }
        // The last step that fits. One that does not fit may be followed by none that does: rows only grow.
        steps
            .into_iter()
            .take_while(|step| step.height() <= height)
            .last()
            .unwrap_or(Self::NOTHING)
    }

    fn height(&self) -> usize {
        let list = |items: usize, rows: usize| items * rows + usize::from(items > 0);
        ABOVE
            + self.gpus * self.gpu_rows
            + list(self.processes, 1)
            + list(self.runs, self.run_rows)
            + usize::from(self.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Contents = Contents {
        gpus: 4,
        processes: 3,
        runs: 2,
        note: false,
    };

    #[test]
    fn an_ordinary_terminal_shows_four_gpus_with_bars_and_history_and_two_runs() {
        let plan = Plan::new(24, &FOUR);
        assert_eq!((plan.gpus, plan.gpu_rows), (4, 3), "{plan:?}");
        assert_eq!((plan.runs, plan.run_rows), (2, 2), "{plan:?}");
        assert_eq!(plan.processes, 3, "{plan:?}");
    }

    #[test]
    fn a_small_one_shows_what_matters_most_and_a_tall_one_longer_history() {
        let plan = Plan::new(8, &FOUR);
        assert_eq!((plan.gpus, plan.gpu_rows, plan.runs), (4, 1, 1), "{plan:?}");
        let plan = Plan::new(60, &FOUR);
        assert_eq!(
            (plan.gpu_rows, plan.runs, plan.processes),
            (8, 2, 3),
            "{plan:?}"
        );
        assert_eq!(Plan::new(0, &FOUR).gpus, 0);
    }

    #[test]
    fn no_plan_is_higher_than_the_screen() {
        for height in 2..80 {
            for (gpus, processes, runs) in
                [(0, 0, 0), (0, 0, 9), (1, 40, 1), (16, 16, 16), (4, 3, 2)]
            {
                let contents = Contents {
                    gpus,
                    processes,
                    runs,
                    note: true,
                };
                let plan = Plan::new(height, &contents);
                assert!(plan.height() <= usize::from(height), "{height}: {plan:?}");
            }
        }
    }
}
