//! `gossamer top`: the activity of the threads of all jobs, once or until `q`.

use std::time::Duration;
use std::{io, thread};

use daemon_protocol::{Answer, Request};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table, TableState};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::causes::with_causes;
use crate::controller::call::{CallError, Caller};
use crate::controller::rates::{self, HEAD, ThreadRow, cells};

/// How often the daemons are queried.
const EVERY: Duration = Duration::from_secs(1);

/// The answers of the daemons, and why some did not answer.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) rows: Vec<ThreadRow>,
    pub(crate) errors: Vec<CallError>,
}

/// Queries all daemons.
pub(crate) async fn ask(caller: &Caller) -> View {
    let take = |answer| match answer {
        Answer::Statistics(job) => Some(*job),
        _ => None,
    };
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    for (host, answer) in caller.list_all(&caller.hosts(), &Request::Statistics, take).await {
        match answer {
            Ok(jobs) => answers.extend(jobs.into_iter().map(|job| (host.clone(), job))),
            Err(error) => errors.push(error),
        }
    }
    View { rows: rates::rows(&answers), errors }
}

/// Shows the threads until the user presses `q`.
pub(crate) async fn show(caller: &Caller) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let shown = show_on(&mut terminal, caller).await;
    ratatui::try_restore()?;
    shown
}

async fn show_on(terminal: &mut ratatui::DefaultTerminal, caller: &Caller) -> io::Result<()> {
    let mut keys = keys();
    let (sender, mut views) = mpsc::channel(1);
    let caller = caller.clone();
    let asking = tokio::spawn(async move {
        while sender.send(ask(&caller).await).await.is_ok() {
            sleep(EVERY).await;
        }
    });
    let (mut view, mut selected) = (None, 0);
    loop {
        terminal.draw(|frame| draw(frame, view.as_ref(), selected))?;
        let rows = view.as_ref().map_or(0, |view: &View| view.rows.len());
        tokio::select! {
            next = views.recv() => view = next,
            key = keys.recv() => match key.transpose()? {
                Some(Key::Quit) | None => break,
                Some(Key::Down) => selected = (selected + 1).min(rows.saturating_sub(1)),
                Some(Key::Up) => selected = selected.saturating_sub(1),
                Some(Key::Redraw) => {}
            },
        }
    }
    asking.abort();
    Ok(())
}

/// A request of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Up,
    Down,
    Redraw,
}

/// The keys that the user presses. The thread that waits for them ends with the program.
fn keys() -> mpsc::UnboundedReceiver<io::Result<Key>> {
    let (pressed, keys) = mpsc::unbounded_channel();
    thread::spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            let Some(key) = event.map(meaning).transpose() else { continue };
            if pressed.send(key).is_err() || is_last {
                return;
            }
        }
    });
    keys
}

fn meaning(event: Event) -> Option<Key> {
    let Event::Key(key) = event else {
        return matches!(event, Event::Resize(..)).then_some(Key::Redraw);
    };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c') if control => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        _ => None,
    }
}

/// Draws the threads; `None` before any host has answered.
fn draw(frame: &mut Frame<'_>, view: Option<&View>, selected: usize) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(2), Constraint::Length(1)])
            .areas(frame.area());
    let Some(view) = view else {
        frame.render_widget(Line::raw("asking the daemons"), head);
        return;
    };
    let total = |of: fn(&rates::Rates) -> f64| -> f64 {
        view.rows.iter().filter_map(|row| row.rates.as_ref()).map(of).sum()
    };
    let title = format!(
        "{} threads serve {} requests a second   (QUEUE: to serve + without reply; q quits)",
        view.rows.len(),
        rates::count(total(|rates| rates.requests_in)),
    );
    frame.render_widget(Line::raw(title), head);
    let rows: Vec<_> = view.rows.iter().map(cells).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        let widest = cells.chain([HEAD[column].len()]).max().unwrap_or(0);
        Constraint::Length(widest.try_into().unwrap_or(u16::MAX))
    };
    let table = Table::new(rows.iter().cloned().map(Row::new), (0..HEAD.len()).map(width))
        .header(Row::new(HEAD).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(selected.min(rows.len().saturating_sub(1)));
    frame.render_stateful_widget(table, body, &mut state);
    if let Some(error) = view.errors.first() {
        let text = format!("{} hosts do not answer: {}", view.errors.len(), with_causes(error));
        frame.render_widget(Line::raw(text), foot);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::controller::rates::tests::said;

    fn screen(view: Option<&View>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(110, 6)).unwrap();
        terminal.draw(|frame| draw(frame, view, 0)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn every_thread_has_a_line() {
        let said = |host: &str, number| (host.parse().unwrap(), said(1, number, 5, true));
        let view = View { rows: rates::rows(&[said("a", 0), said("b", 1)]), errors: vec![] };
        let screen = screen(Some(&view));
        assert!(screen.contains("2 threads serve 24.7k requests a second"), "{screen}");
        for host in ["a", "b"] {
            assert!(screen.contains(&format!("kv       {host}     0       12.3k")), "{screen}");
        }
    }

    #[test]
    fn a_view_without_answers_or_jobs_can_be_shown() {
        assert!(screen(None).contains("asking the daemons"));
        let empty = screen(Some(&View::default()));
        assert!(empty.contains("0 threads") && empty.contains("THREAD"), "{empty}");
    }

    #[test]
    fn q_quits() {
        let key = |code| meaning(Event::Key(code));
        assert_eq!(key(KeyCode::Char('q').into()), Some(Key::Quit));
        let interrupt = event::KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(key(interrupt), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('x').into()), None);
    }
}
