//! The keys and their meaning.

use super::view::View;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Quit,
    Help,
    Suspend,
    Redraw,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    Next,
    Previous,
    Show(View),
    Sort,
    Reverse,
    Pause,
    Interval,
    /// Any other.
    Other,
}

pub fn meaning(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return match event.code {
            KeyCode::Char('c') => Some(Key::Quit),
            KeyCode::Char('z') => Some(Key::Suspend),
            KeyCode::Char('l') => Some(Key::Redraw),
            KeyCode::Char('f' | 'd') => Some(Key::PageDown),
            KeyCode::Char('b' | 'u') => Some(Key::PageUp),
            _ => None,
        };
    }
    Some(match event.code {
        KeyCode::Char('q' | 'Q') => Key::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Key::Help,
        KeyCode::Char('k') | KeyCode::Up => Key::Up,
        KeyCode::Char('j') | KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Char('g') | KeyCode::Home => Key::First,
        KeyCode::Char('G') | KeyCode::End => Key::Last,
        KeyCode::Enter => Key::Open,
        KeyCode::Esc | KeyCode::Backspace => Key::Back,
        KeyCode::Tab | KeyCode::Right => Key::Next,
        KeyCode::BackTab | KeyCode::Left => Key::Previous,
        KeyCode::Char('s') => Key::Sort,
        KeyCode::Char('r') => Key::Reverse,
        KeyCode::Char(' ') => Key::Pause,
        KeyCode::Char('d') => Key::Interval,
        KeyCode::Char(digit) => View::numbered(digit).map_or(Key::Other, Key::Show),
        _ => Key::Other,
    })
}
