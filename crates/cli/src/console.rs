//! Where a command's words go, and where answers come from. Two leading blanks stand before every line, as in LVM. A
//! reader that went away ends nothing: what cannot be written is dropped.

use std::io::{self, BufRead, IsTerminal, Write};

/// A command's standard streams; tests use buffers.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// Answers to questions; none: nobody is there to ask.
    answers: Option<&'a mut dyn BufRead>,
    /// Whether `err` is a screen, on which a line can be written over.
    shows_progress: bool,
    progress_is_shown: bool,
}

impl<'a> Console<'a> {
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write, answers: Option<&'a mut dyn BufRead>) -> Console<'a> {
        Console { out, err, answers, shows_progress: false, progress_is_shown: false }
    }

    /// Shows progress where standard error is a screen.
    pub fn with_progress(mut self) -> Self {
        self.shows_progress = io::stderr().is_terminal();
        self
    }

    /// A line on standard output.
    pub fn say(&mut self, line: impl AsRef<str>) {
        self.raw_out(&format!("  {}\n", line.as_ref()));
    }

    /// Text on standard output as it is.
    pub fn raw_out(&mut self, text: &str) {
        self.clear_progress();
        // Nobody is left to read it, and there is nobody else to tell.
        let _unread = self.out.write_all(text.as_bytes());
    }

    /// One or more lines on standard error.
    pub fn complain(&mut self, lines: impl AsRef<str>) {
        for line in lines.as_ref().lines() {
            self.raw_err(&format!("  {line}\n"));
        }
    }

    /// Text on standard error as it is.
    pub fn raw_err(&mut self, text: &str) {
        self.clear_progress();
        let _unread = self.err.write_all(text.as_bytes());
    }

    /// How far a long request is.
    pub fn progress(&mut self, done: u64, total: u64, what: &str) {
        if !self.shows_progress {
            return;
        }
        let share = match total {
            0 => done.to_string(),
            _ => format!("{}%", rowen_control::units::percent(done, total)),
        };
        self.progress_is_shown = true;
        let _unread = write!(self.err, "\r\x1b[K  {what}: {share}").and_then(|()| self.err.flush());
    }

    fn clear_progress(&mut self) {
        if std::mem::take(&mut self.progress_is_shown) {
            let _unread = write!(self.err, "\r\x1b[K").and_then(|()| self.err.flush());
        }
    }

    /// Asks a question (without its `[y/n]`). Without a terminal the answer is no, and the question is shown all the same.
    pub fn asks(&mut self, question: &str) -> bool {
        self.clear_progress();
        if self.answers.is_none() {
            self.raw_err(&format!("{question} [y/n]: [n]\n"));
            return false;
        }
        loop {
            self.raw_err(&format!("{question} [y/n]: "));
            let _unread = self.err.flush();
            let mut line = String::new();
            let read = self.answers.as_mut().map_or(Ok(0), |answers| answers.read_line(&mut line));
            match line.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return true,
                "n" | "no" => return false,
                _ if !matches!(read, Ok(1..)) => return false,
                _ => {}
            }
        }
    }

    pub fn flush(&mut self) {
        let _unread = self.out.flush();
        let _unread = self.err.flush();
    }
}
