//! What is on the screen, and what keys do to it. It fits 80 columns and 24 lines.
//!
//! ```text
//! 2 programs run; up/down choose, + - b change the budget, q ends
//!     PID      local     budget        far  faults/s  stall accur. command
//!    4711    500 MiB    512 MiB    1.5 GiB    12,346   10 %   92 % ./job
//!  …
//! ./job with arguments                                                    of the chosen run
//! inline, 2 processes, up 12 s …
//! slowdown 1.11 of 1.2 …                                                  with --slowdown
//! compressed:2G       1.1 GiB, in    120 MiB/s, out    300 MiB/s          for each path to far memory
//! message, or the budget that is being written
//! ```

use super::rates::{COLUMNS, PathRates, Row};
use crate::control::ps::short;
use crate::control::{PathStatus, Status};
use crate::report::{bytes, count};
use hinterland_units::{Budget, Foreign};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Table, TableState};
use std::time::Duration;

/// By which part of itself a key changes a budget.
const STEP: u64 = 8;
/// Characters of a budget that is being written.
const ENTRY_MAX: usize = 24;
/// Lines below the table, of a run without paths.
const DETAIL_LINES: u16 = 4;
/// Paths that are shown.
const PATHS_MAX: usize = 4;

/// See the module.
#[derive(Default)]
pub struct View {
    rows: Vec<Row>,
    /// The run that was chosen; it may be gone.
    chosen: Option<i32>,
    /// A budget that is being written.
    entry: Option<String>,
    message: String,
    has_looked: bool,
}

/// What a key asks for.
#[derive(PartialEq, Eq, Debug)]
pub enum Wish {
    /// Nothing beyond the view.
    Nothing,
    /// The end.
    End,
    /// To be suspended, with the terminal as it was before.
    Stop,
    /// Another local budget for a run.
    Set {
        /// Its launcher.
        pid: i32,
        /// As it is written.
        local: String,
    },
}

impl View {
    /// Takes what was found.
    pub fn see(&mut self, rows: Vec<Row>, silent: &[String]) {
        self.has_looked = true;
        self.rows = rows;
        // What is being written is for the chosen run, and for no other one that takes its place.
        if let Some(chosen) = self.chosen.filter(|_| self.entry.is_some() && self.current_is_another()) {
            self.entry = None;
            self.say(format!("{chosen}: the budget is not set: the run has ended, or does not answer"));
        }
        if let Some(words) = silent.first() {
            self.say(words.clone());
        }
    }

    /// A line for the user.
    pub fn say(&mut self, words: String) {
        self.message = words;
    }

    /// The run that keys are about: the one that was chosen while it runs, else the first.
    fn index(&self) -> Option<usize> {
        let chosen = self.rows.iter().position(|row| Some(row.status.pid) == self.chosen);
        chosen.or((!self.rows.is_empty()).then_some(0))
    }

    fn current(&self) -> Option<&Row> {
        self.rows.get(self.index()?)
    }

    /// Whether the run that was chosen is not there.
    fn current_is_another(&self) -> bool {
        self.current().map(|row| row.status.pid) != self.chosen
    }

    fn choose(&mut self, index: usize) {
        self.chosen = self.rows.get(index.min(self.rows.len().saturating_sub(1))).map(|row| row.status.pid);
    }

    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                // Ctrl-\ is 0x1c, which terminals also send for Ctrl-4.
                KeyCode::Char('c' | '\\' | '4') => Wish::End,
                KeyCode::Char('z') => Wish::Stop,
                _ => Wish::Nothing,
            };
        }
        match self.entry.take() {
            Some(entry) => self.write(entry, key.code),
            None => self.command(key.code),
        }
    }

    fn command(&mut self, key: KeyCode) -> Wish {
        let index = self.index().unwrap_or(0);
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::End,
            KeyCode::Down | KeyCode::Char('j') => self.choose(index + 1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(index.saturating_sub(1)),
            KeyCode::Char('b') if self.current().is_some() => {
                self.choose(index);
                self.entry = Some(String::new());
            }
            KeyCode::Char('+') => return self.step(|budget| budget.saturating_add(budget / STEP)),
            KeyCode::Char('-') => return self.step(|budget| (budget - budget / STEP).max(Budget::FLOOR.0)),
            _ => {}
        }
        Wish::Nothing
    }

    /// With a slowdown the launcher finds the budget; what the user sets is its ceiling. The next key goes on from
    /// there, whether the run has been looked at meanwhile or not.
    fn step(&mut self, change: impl Fn(u64) -> u64) -> Wish {
        let Some(row) = self.index().and_then(|index| self.rows.get_mut(index)) else { return Wish::Nothing };
        let budget = row.status.local_ceiling_bytes.as_mut().unwrap_or(&mut row.status.local_budget_bytes);
        *budget = change(*budget);
        Wish::Set { pid: row.status.pid, local: budget.to_string() }
    }

    /// A key while a budget is being written.
    fn write(&mut self, mut entry: String, key: KeyCode) -> Wish {
        match (key, self.current()) {
            (KeyCode::Enter, Some(row)) if !entry.trim().is_empty() => {
                return Wish::Set { pid: row.status.pid, local: entry };
            }
            (KeyCode::Enter | KeyCode::Esc, _) | (_, None) => return Wish::Nothing,
            (KeyCode::Backspace, _) => drop(entry.pop()),
            (KeyCode::Char(written), _) if !written.is_control() && entry.chars().count() < ENTRY_MAX => {
                entry.push(written)
            }
            _ => {}
        }
        self.entry = Some(entry);
        Wish::Nothing
    }

    /// Draws it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let of_row = |row: &Row| row.paths.len().min(PATHS_MAX) + slowdown(&row.status).len();
        let detail = DETAIL_LINES + u16::try_from(self.current().map_or(0, of_row)).unwrap_or(0);
        let lines = [Constraint::Length(1), Constraint::Min(2), Constraint::Length(detail), Constraint::Length(1)];
        let [title, table, detail, last] = Layout::vertical(lines).areas(frame.area());
        frame.render_widget(Line::styled(self.title(), Style::new().add_modifier(Modifier::BOLD)), title);
        self.draw_table(frame, table);
        frame.render_widget(Paragraph::new(self.detail(usize::from(detail.width))), detail);
        frame.render_widget(Line::raw(self.last()), last);
    }

    fn title(&self) -> String {
        let found = match (self.has_looked, self.rows.len()) {
            (false, _) => "looking".to_owned(),
            (true, 0) => "no program runs".to_owned(),
            (true, 1) => "1 program runs".to_owned(),
            (true, more) => format!("{more} programs run"),
        };
        format!("{found}; up/down choose, + - b change the local budget, q ends")
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: ratatui::layout::Rect) {
        let used: usize = COLUMNS.iter().map(|(_, width)| width + 1).sum();
        let command_width = usize::from(area.width).saturating_sub(used);
        let right = |text: String| Text::from(text).right_aligned();
        let row = |row: &Row| {
            let cells = row.cells().map(right).into_iter();
            let command = Text::from(short(&row.status.command, command_width));
            ratatui::widgets::Row::new(cells.chain([command]))
        };
        let names = COLUMNS.iter().map(|(name, _)| right((*name).to_owned())).chain([Text::from("command")]);
        let widths = COLUMNS.iter().map(|(_, width)| Constraint::Length(u16::try_from(*width).unwrap_or(0)));
        let table = Table::new(self.rows.iter().map(row), widths.chain([Constraint::Min(0)]))
            .header(ratatui::widgets::Row::new(names))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(self.index()));
    }

    /// What the table has no room for, of the run that was chosen.
    fn detail(&self, width: usize) -> Vec<Line<'static>> {
        let Some(row) = self.current() else { return Vec::new() };
        let status = &row.status;
        let ram = status.ram_budget_bytes.map_or_else(String::new, |bound| format!(" of {}", bytes(bound)));
        let up = Duration::try_from_secs_f64(status.wall_seconds).unwrap_or_default();
        let up = humantime::format_duration(Duration::from_secs(up.as_secs()));
        let lines = [
            String::new(),
            short(&status.command, width),
            format!(
                "{}, {} processes, up {}; RAM {}{ram}, managed {}, copies {}",
                Foreign(&status.fault_path),
                status.process_count,
                up,
                bytes(status.total_ram_bytes),
                bytes(status.managed_bytes),
                bytes(status.copied_bytes),
            ),
            format!(
                "{} major and {} minor faults, stalled {:.1} s; {} pages prefetched",
                count(status.major_faults),
                count(status.minor_faults),
                status.stall_seconds,
                count(status.prefetched_pages),
            ),
        ];
        lines.into_iter().chain(slowdown(status)).chain(paths(row)).map(Line::raw).collect()
    }

    fn last(&self) -> String {
        match (&self.entry, self.current()) {
            (Some(entry), Some(row)) => {
                format!("local budget of {} (Enter sets it, Esc does not): {entry}_", row.status.pid)
            }
            _ => Foreign(&self.message).to_string(),
        }
    }
}

/// What a run with a slowdown has come to, its ceiling, and what keeps it from that beside other runs.
fn slowdown(status: &Status) -> Vec<String> {
    let of_both = status.slowdown.zip(status.slowdown_asked).zip(status.local_ceiling_bytes);
    let achieved = of_both.map(|((achieved, asked), ceiling)| {
        format!("slowdown {achieved:.2} of {asked} allowed; the local budget is {} at most", bytes(ceiling))
    });
    let obstacle = Some(Foreign(&status.slowdown_obstacle).to_string()).filter(|words| !words.is_empty());
    achieved.into_iter().chain(obstacle).collect()
}

/// A line for each path to far memory; the last one says how many more there are.
fn paths(row: &Row) -> Vec<String> {
    let all = row.status.paths.iter().zip(&row.paths);
    let line = |(path, rates): (&PathStatus, &PathRates)| rates.line(path);
    let count = row.paths.len();
    if count <= PATHS_MAX {
        return all.map(line).collect();
    }
    let more = format!("and {} more paths: hinterland ps --json", count - (PATHS_MAX - 1));
    all.take(PATHS_MAX - 1).map(line).chain([more]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rates::{Rates, tests::run};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Instant;

    fn view(pids: std::ops::Range<i32>) -> View {
        let mut view = View::default();
        see(&mut view, pids);
        view
    }

    fn see(view: &mut View, pids: std::ops::Range<i32>) {
        let runs = pids.map(|pid| run(pid, 3700.0, 123_456, 1.0)).collect();
        view.see(Rates::default().rows(runs, Instant::now()), &[]);
    }

    fn screen(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn press(view: &mut View, keys: &str) -> Wish {
        let code = |key| match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            key => KeyCode::Char(key),
        };
        keys.chars().map(|key| view.key(KeyEvent::from(code(key)))).last().unwrap_or(Wish::Nothing)
    }

    #[test]
    fn eighty_columns_and_twenty_four_lines_are_enough() {
        let lines = screen(&view(4711..4713), 80, 24);
        assert_eq!(lines[0], "2 programs run; up/down choose, + - b change the local budget, q ends");
        assert_eq!(lines[1], "    PID      local     budget        far  faults/s  stall accur. command");
        assert_eq!(lines[2], "   4711    500 MiB    512 MiB    1.5 GiB        33    0 %   92 % ./job 4711 wit…");
        assert_eq!(lines[20], "./job 4711 with arguments");
        assert_eq!(lines[21], "inline, 2 processes, up 1h 1m 40s; RAM 700 MiB, managed 2 GiB, copies 36 MiB");
        assert_eq!(lines[22], "123,456 major and 5 minor faults, stalled 1.0 s; 1,000 pages prefetched");
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn paths_to_far_memory_are_below_the_chosen_run() {
        let path = |number: u64| PathStatus {
            url: format!("tcp://a-machine-with-a-long-name-{number}:7440"),
            far_bytes: number << 30,
            bytes_in: number * (37_000 << 20),
            bytes_out: number * (3_700 << 20),
        };
        let lines = |count| {
            let runs = vec![Status { paths: (1..=count).map(path).collect(), ..run(4711, 3700.0, 5, 1.0) }];
            let mut view = View::default();
            view.see(Rates::default().rows(runs, Instant::now()), &[]);
            screen(&view, 80, 24)
        };
        let two = lines(2);
        assert_eq!(two[18], "./job 4711 with arguments");
        assert_eq!(two[21], "tcp://a-machine-with-a-long-n…      1 GiB, in     10 MiB/s, out      1 MiB/s");
        assert!(two[22].contains(" 2 GiB, in     20 MiB/s"), "{}", two[22]);
        let many = lines(7);
        assert_eq!(many[22], "and 4 more paths: hinterland ps --json");
        assert!(many.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn keys_change_the_ceiling_of_a_run_whose_budget_follows_a_slowdown() {
        let status = Status {
            local_budget_bytes: 200 << 20,
            local_ceiling_bytes: Some(1 << 30),
            slowdown: Some(1.108),
            slowdown_asked: Some(1.2),
            ..run(7, 3700.0, 5, 1.0)
        };
        let mut view = View::default();
        view.see(Rates::default().rows(vec![status], Instant::now()), &[]);
        let set = |local: u64| Wish::Set { pid: 7, local: local.to_string() };
        let lines = screen(&view, 80, 24);
        assert_eq!(lines[22], "slowdown 1.11 of 1.2 allowed; the local budget is 1 GiB at most");
        assert_eq!(press(&mut view, "-"), set(896 << 20));
        assert_eq!(press(&mut view, "+"), set(1008 << 20));
        let obstacle = "cannot keep 1.2: would need up to 1.4 GiB, its share is 900 MiB beside 2 other runs";
        let status = Status { slowdown_obstacle: obstacle.into(), ..view.rows[0].status.clone() };
        view.see(Rates::default().rows(vec![status], Instant::now()), &[]);
        let lines = screen(&view, 90, 24);
        assert_eq!((lines[21].get(..13), lines[22].as_str()), (Some("slowdown 1.11"), obstacle));
    }

    #[test]
    fn more_runs_than_lines_are_scrolled_and_no_size_is_too_small() {
        let mut view = view(1000..1100);
        press(&mut view, &"j".repeat(60));
        assert!(screen(&view, 80, 24).iter().any(|line| line.contains(" 1060 ")), "the chosen one is seen");
        for (width, height) in [(1, 1), (10, 3), (20, 8), (300, 100)] {
            screen(&view, width, height);
        }
        assert!(screen(&View::default(), 80, 24)[0].starts_with("looking;"));
    }

    #[test]
    fn keys_choose_a_run_and_change_its_budget() {
        let mut view = view(1..4);
        let set = |pid, local: &str| Wish::Set { pid, local: local.into() };
        assert_eq!(press(&mut view, "+"), set(1, &(576u64 << 20).to_string()));
        assert_eq!(press(&mut view, "+"), set(1, &(648u64 << 20).to_string()), "each key is a step");
        assert_eq!(press(&mut view, "jj-"), set(3, &(448u64 << 20).to_string()));
        assert_eq!(press(&mut view, "kb768X\x08M\n"), set(2, "768M"));
        assert_eq!(press(&mut view, "b1G\x1b"), Wish::Nothing, "given up");
        assert_eq!(press(&mut view, "b\n"), Wish::Nothing, "nothing was written");
        assert_eq!(press(&mut view, "bq"), Wish::Nothing, "a letter of a budget");
        assert!(screen(&view, 80, 24)[23].ends_with("Esc does not): q_"));
        press(&mut view, "\x1b");
        press(&mut view, "b24M");
        // The chosen run ends: the first is chosen, as the screen shows, and what was written is not for it.
        see(&mut view, 3..5);
        assert!(screen(&view, 80, 24)[23].starts_with("2: the budget is not set: "));
        assert_eq!(press(&mut view, "\n"), Wish::Nothing);
        assert_eq!(press(&mut view, "-"), set(3, &(448u64 << 20).to_string()));
        assert_eq!(press(&mut view, "q"), Wish::End);
        for (key, wish) in
            [('c', Wish::End), ('\\', Wish::End), ('4', Wish::End), ('z', Wish::Stop), ('x', Wish::Nothing)]
        {
            assert_eq!(view.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL)), wish, "{key}");
        }
        let mut empty = View::default();
        assert_eq!(press(&mut empty, "+-bj\n"), Wish::Nothing);
    }
}
