//! The terminal and its modes (TO2). crossterm keeps the old state, so it can be restored wherever the command ends.

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue, terminal};
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color as Tint, Modifier, Style};
use rowen_engine::planted;
use std::io::{self, BufWriter, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal's modes are changed. They are restored once.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Restores the terminal.
pub fn give_back() {
    if IS_TAKEN.swap(false, Ordering::AcqRel) && !planted::is("terminal_kept") {
        // A terminal that is gone cannot be restored.
        let _may_be_gone =
            execute!(io::stdout(), ResetColor, SetAttribute(Attribute::Reset), Show, LeaveAlternateScreen);
        let _may_be_gone = terminal::disable_raw_mode();
    }
}

/// The terminal while its modes are changed.
pub struct Screen {
    out: BufWriter<Stdout>,
    /// What it shows.
    shown: Buffer,
}

impl Screen {
    pub fn take() -> io::Result<Screen> {
        let mut screen = Screen { out: BufWriter::new(io::stdout()), shown: Buffer::empty(Rect::ZERO) };
        screen.take_again()?;
        Ok(screen)
    }

    /// For the time after it was restored, or after another program may have changed it.
    pub fn take_again(&mut self) -> io::Result<()> {
        terminal::disable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Release);
        terminal::enable_raw_mode()?;
        execute!(self.out, EnterAlternateScreen, Hide)?;
        self.forget();
        Ok(())
    }

    /// The shown text is unknown, so the next frame is drawn completely.
    pub fn forget(&mut self) {
        self.shown = Buffer::empty(Rect::ZERO);
    }

    /// Shows the frame: writes the differences from the previous one.
    pub fn show(&mut self, frame: &Buffer) -> io::Result<()> {
        if self.shown.area() != frame.area() {
            self.shown = Buffer::empty(*frame.area());
            queue!(self.out, ResetColor, SetAttribute(Attribute::Reset), Clear(ClearType::All))?;
        }
        write_cells(&mut self.out, &self.shown.diff(frame))?;
        self.out.flush()?;
        self.shown = frame.clone();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _may_be_gone = self.out.flush();
        give_back();
    }
}

fn write_cells(out: &mut impl Write, cells: &[(u16, u16, &Cell)]) -> io::Result<()> {
    let mut next = None;
    let mut style: Option<Style> = None;
    for (x, y, cell) in cells {
        if next != Some((*x, *y)) {
            queue!(out, MoveTo(*x, *y))?;
        }
        // After a wide character the cursor's position is unknown, so it is set again.
        next = cell.symbol().is_ascii().then_some((x + 1, *y));
        if style != Some(cell.style()) {
            set_style(out, cell)?;
            style = Some(cell.style());
        }
        queue!(out, Print(cell.symbol()))?;
    }
    queue!(out, ResetColor, SetAttribute(Attribute::Reset))
}

fn set_style(out: &mut impl Write, cell: &Cell) -> io::Result<()> {
    queue!(out, ResetColor, SetAttribute(Attribute::Reset))?;
    let colour = match cell.fg {
        Tint::Red => Some(Color::DarkRed),
        Tint::Green => Some(Color::DarkGreen),
        Tint::Yellow => Some(Color::DarkYellow),
        _ => None,
    };
    if let Some(colour) = colour {
        queue!(out, SetForegroundColor(colour))?;
    }
    let attributes = [
        (Modifier::BOLD, Attribute::Bold),
        (Modifier::DIM, Attribute::Dim),
        (Modifier::UNDERLINED, Attribute::Underlined),
        (Modifier::REVERSED, Attribute::Reverse),
    ];
    for (modifier, attribute) in attributes {
        if cell.modifier.contains(modifier) {
            queue!(out, SetAttribute(attribute))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written() {
        let area = Rect::new(0, 0, 12, 2);
        let (mut before, mut after) = (Buffer::empty(area), Buffer::empty(area));
        before.set_string(0, 0, "vg0 serving", Style::new());
        after.set_string(0, 0, "vg0 stopped", Style::new());
        after.set_string(0, 1, "!", Style::new().add_modifier(Modifier::BOLD));
        let mut written = Vec::new();
        write_cells(&mut written, &before.diff(&after)).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert!(
            written.contains("\x1b[1;6H") && !written.contains("vg0") && written.contains("\x1b[1m!"),
            "{written:?}"
        );
        let mut none = Vec::new();
        write_cells(&mut none, &after.diff(&after)).unwrap();
        assert!(!none.contains(&b'H'), "{none:?}");
    }
}
