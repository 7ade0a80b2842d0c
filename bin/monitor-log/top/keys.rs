//! What keys choose: the order of the processes, one of them, and its end.

use plmkit_contract::one_line;
use plmkit_telemetry::live::ProcessStatus;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};

use super::table::fitting;

/// Processes of a page.
const PAGE: usize = 10;

/// The keys, the most important first.
const HELP: [&str; 5] = [
    "q quit",
    "↑↓ choose",
    "k end",
    "sort: m g p c",
    "PgUp PgDn scroll",
];

/// What the keys have chosen.
#[derive(Default)]
pub(super) struct Keys {
    /// The first letter of the heading whose column is sorted.
    pub(super) sort: Option<char>,
    /// The process id and the GPU of a process.
    chosen: Option<(u32, Option<String>)>,
    /// The process that `y` ends.
    question: Option<ProcessStatus>,
    /// What is to be told until the next key.
    pub(super) note: Option<String>,
}

impl Keys {
    /// Sorts processes: the most memory or CPU time first, or by GPU or process id.
    pub(super) fn sorted<'a>(&self, all: &'a [ProcessStatus]) -> Vec<&'a ProcessStatus> {
        let key = |process: &ProcessStatus| match self.sort {
            Some('m') => process.mem_used_mib.map_or(1.0, |mib| -(mib as f64)),
            Some('c') => process.cpu_util.map_or(1.0, |percent| -percent),
            Some('p') => f64::from(process.pid),
            _ => 0.0,
        };
        let mut sorted: Vec<&ProcessStatus> = all.iter().collect();
        sorted.sort_by(|one, other| key(one).total_cmp(&key(other)));
        sorted
    }

    /// Returns the place of the chosen process.
    pub(super) fn chosen(&self, sorted: &[&ProcessStatus]) -> Option<usize> {
        let (pid, uuid) = self.chosen.as_ref()?;
        let is_chosen = |process: &&ProcessStatus| (&process.pid, &process.gpu_uuid) == (pid, uuid);
        sorted.iter().position(is_chosen)
    }

    /// Whether it waits for an answer.
    pub(super) fn is_asking(&self) -> bool {
        self.question.is_some()
    }

    /// Takes a key, with the processes that are there.
    pub(super) fn press(&mut self, key: KeyCode, all: &[ProcessStatus]) {
        self.note = None;
        if let Some(process) = self.question.take() {
            if key == KeyCode::Char('y') {
                self.note = Some(match process.terminate() {
                    Ok(()) => format!("SIGTERM was sent to {}", process.pid),
                    Err(reason) => format!("{} was not ended: {reason}", process.pid),
                });
            }
            return;
        }
        let sorted = self.sorted(all);
        let place = self.chosen(&sorted);
        let last = sorted.len().saturating_sub(1);
        let to = match key {
            KeyCode::Up => place.unwrap_or(0).saturating_sub(1),
            KeyCode::Down => place.map_or(0, |place| place + 1),
            KeyCode::PageUp => place.unwrap_or(0).saturating_sub(PAGE),
            KeyCode::PageDown => place.unwrap_or(0) + PAGE,
            KeyCode::Char('k') => {
                self.question = place.map(|place| sorted[place].clone());
                let is_chosen = self.question.is_some();
                self.note = (!is_chosen).then(|| "choose a process with ↑ and ↓ first".to_owned());
                return;
            }
            KeyCode::Char(sort @ ('m' | 'g' | 'p' | 'c')) => {
                self.sort = Some(sort);
                return;
            }
            _ => return,
        };
        let chosen = sorted.get(to.min(last));
        self.chosen = chosen.map(|process| (process.pid, process.gpu_uuid.clone()));
    }

    /// Returns the question, what is to be told, or the names of the keys.
    pub(super) fn line(&self, width: usize) -> Line<'static> {
        if let Some(process) = &self.question {
            let command = process.command.as_deref().unwrap_or("?");
            let text = format!("end {} ({command})? y/n", process.pid);
            return Line::from(one_line(&text, width.saturating_sub(1))).fg(Color::Yellow);
        }
        match &self.note {
            Some(note) => Line::from(note.clone()).fg(Color::Yellow),
            None => fitting(HELP.map(Span::from).to_vec(), width).dim(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, mem_used_mib: Option<u64>, cpu_util: f64) -> ProcessStatus {
        ProcessStatus {
            pid,
            mem_used_mib,
            cpu_util: Some(cpu_util),
            ..ProcessStatus::default()
        }
    }

    #[test]
    fn processes_are_sorted_and_the_chosen_one_stays_chosen() {
        let all = [
            process(9, Some(5), 1.0),
            process(7, None, 0.0),
            process(8, Some(6), 9.0),
        ];
        let mut keys = Keys::default();
        for (key, expected) in [
            ('m', [8, 9, 7]),
            ('p', [7, 8, 9]),
            ('c', [8, 9, 7]),
            ('g', [9, 7, 8]),
        ] {
            keys.press(KeyCode::Char(key), &all);
            let pids = keys.sorted(&all).into_iter().map(|process| process.pid);
            assert_eq!(pids.collect::<Vec<_>>(), expected, "{key}");
        }
        let place = |keys: &Keys| keys.chosen(&keys.sorted(&all));
        assert_eq!(place(&keys), None);
        for (key, expected) in [
            (KeyCode::Down, 0),
            (KeyCode::Down, 1),
            (KeyCode::Char('p'), 0),
            (KeyCode::PageDown, 2),
            (KeyCode::Down, 2),
            (KeyCode::Up, 1),
            (KeyCode::PageUp, 0),
        ] {
            keys.press(key, &all);
            assert_eq!(place(&keys), Some(expected), "{key:?}");
        }
    }

    #[test]
    fn only_y_ends_a_process_and_one_that_is_not_visible_is_refused() {
        let all = [process(7, None, 0.0)];
        let mut keys = Keys::default();
        let text = |keys: &Keys| keys.line(60).to_string();
        assert!(text(&keys).starts_with("q quit  ↑↓ choose  k end  sort: m g p c"));
        keys.press(KeyCode::Char('k'), &all);
        assert_eq!(text(&keys), "choose a process with ↑ and ↓ first");
        for (key, expected) in [
            ('n', "q quit"),
            ('y', "7 was not ended: it is not visible here"),
        ] {
            keys.press(KeyCode::Down, &all);
            keys.press(KeyCode::Char('k'), &all);
            assert_eq!(text(&keys), "end 7 (?)? y/n");
            keys.press(KeyCode::Char(key), &all);
            assert!(text(&keys).starts_with(expected), "{}", text(&keys));
        }
    }
}
