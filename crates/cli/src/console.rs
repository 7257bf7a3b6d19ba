//! Where a command's words go, and where answers come from. Two leading blanks stand before every line, as in LVM. A
//! reader that went away ends nothing: what cannot be written is dropped. Answers to questions, and the lines of a
//! shell, are read from standard input, screen or not, as LVM does: `echo y | lvremove ...` works.

use rowen_control::status::duration;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Lines of a screen that does not say how many it has.
const USUAL_HEIGHT: usize = 24;

/// A command's standard streams; tests use buffers.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// Answers to questions; none: nobody is there to ask.
    answers: Option<&'a mut dyn BufRead>,
    /// `-qq`: nothing is said of what was done.
    is_silent: bool,
    /// Whoever read standard output has gone.
    is_unread: bool,
    /// Whether `err` is a screen, on which a line can be written over.
    shows_progress: bool,
    progress_is_shown: bool,
    /// When progress was shown first, and how far it was then.
    progress_since: Option<(Instant, u64)>,
    /// What servers had to say besides their answers to this command.
    noticed: Vec<String>,
    /// Lines of the screen.
    height: usize,
    /// Whether standard output and standard input are terminals.
    shows_output: bool,
    reads_terminal: bool,
}

/// How many seconds it will take at this pace. Nobody knows at the beginning.
fn seconds_left(passed: Duration, done: u64, total: u64) -> Option<u64> {
    let is_known = passed >= Duration::from_secs(3) && done > 0 && done <= total;
    is_known.then(|| (passed.as_secs_f64() * (total - done) as f64 / done as f64).ceil() as u64)
}

impl<'a> Console<'a> {
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write, answers: Option<&'a mut dyn BufRead>) -> Console<'a> {
        Console {
            out,
            err,
            answers,
            is_silent: false,
            is_unread: false,
            shows_progress: false,
            progress_is_shown: false,
            progress_since: None,
            noticed: Vec::new(),
            height: USUAL_HEIGHT,
            shows_output: false,
            reads_terminal: false,
        }
    }

    /// Shows progress where standard error is a screen, and knows how high the screen of standard output is.
    pub fn with_progress(mut self) -> Self {
        // One that says it has hardly any lines has not been asked how many.
        let lines = rustix::termios::tcgetwinsize(io::stdout()).map(|size| usize::from(size.ws_row));
        self.height = lines.ok().filter(|lines| *lines > 3).unwrap_or(USUAL_HEIGHT);
        self.shows_progress = io::stderr().is_terminal();
        self.shows_output = io::stdout().is_terminal();
        self.reads_terminal = io::stdin().is_terminal();
        self
    }

    /// Whether lines about what was done are left out.
    pub fn set_silent(&mut self, is_silent: bool) {
        self.is_silent = is_silent;
    }

    /// Whether standard output is a terminal.
    pub fn shows_output(&self) -> bool {
        self.shows_output
    }

    /// Whether standard input is a terminal.
    pub fn reads_terminal(&self) -> bool {
        self.reads_terminal
    }

    /// Standard input, for a command that reads bytes from it and asks no questions.
    pub fn take_input(&mut self) -> Option<&'a mut dyn BufRead> {
        self.answers.take()
    }

    /// Lines of the screen on which output is shown; where it is shown on none, of a usual one.
    pub fn height(&self) -> usize {
        self.height
    }

    /// A line on standard output.
    pub fn say(&mut self, line: impl AsRef<str>) {
        if self.is_silent {
            return;
        }
        self.raw_out(&format!("  {}\n", line.as_ref()));
    }

    /// Text on standard output as it is.
    pub fn raw_out(&mut self, text: &str) {
        self.clear_progress();
        // The reader has gone, and nothing else can be done with the text.
        self.is_unread |= self.out.write_all(text.as_bytes()).is_err();
    }

    /// Bytes on standard output. For what a program reads: an error says that it got less than all.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.clear_progress();
        self.out.write_all(bytes)
    }

    /// Sees to it that all that was put is written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// One or more lines on standard error.
    pub fn complain(&mut self, lines: impl AsRef<str>) {
        for line in lines.as_ref().lines() {
            self.raw_err(&format!("  {line}\n"));
        }
    }

    /// A command begins.
    pub fn begins(&mut self) {
        self.progress_since = None;
        self.noticed.clear();
    }

    /// What a server had to say. A command that asks it several times tells it once.
    pub fn notice(&mut self, message: String) {
        if !self.noticed.contains(&message) {
            self.complain(&message);
            self.noticed.push(message);
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
        let (begun, from) = *self.progress_since.get_or_insert_with(|| (Instant::now(), done));
        let left = seconds_left(begun.elapsed(), done.saturating_sub(from), total.saturating_sub(from));
        let left = left.map_or_else(String::new, |left| format!(", {} left", duration(left)));
        let share = match total {
            0 => done.to_string(),
            _ => format!("{}%{left}", rowen_control::units::percent(done, total)),
        };
        self.progress_is_shown = true;
        let _unread = write!(self.err, "\r\x1b[K  {what}: {share}").and_then(|()| self.err.flush());
    }

    fn clear_progress(&mut self) {
        if std::mem::take(&mut self.progress_is_shown) {
            let _unread = write!(self.err, "\r\x1b[K").and_then(|()| self.err.flush());
        }
    }

    /// Asks a question (without its `[y/n]: `). Where no answer comes it is no, and the question is shown all the same.
    pub fn asks(&mut self, question: &str) -> bool {
        self.asks_exactly(&format!("{question} [y/n]: "))
    }

    /// The same with the whole question.
    pub fn asks_exactly(&mut self, question: &str) -> bool {
        self.flush();
        loop {
            self.raw_err(question);
            let _unread = self.err.flush();
            let Some(line) = self.read_line() else {
                self.raw_err("[n]\n");
                return false;
            };
            match line.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return true,
                "n" | "no" => return false,
                other => self.complain(format!("WARNING: Invalid input '{other}'.")),
            }
        }
    }

    /// The next line of standard input; none at its end.
    pub fn read_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.answers.as_mut().map_or(Ok(0), |answers| answers.read_line(&mut line));
        matches!(read, Ok(1..)).then_some(line)
    }

    /// Whether whoever read standard output has gone: a command that would print for ever ends then.
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }

    pub fn flush(&mut self) {
        self.is_unread |= self.out.flush().is_err();
        let _unread = self.err.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_says_a_notice_once() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err, None);
        for _ in 0..2 {
            console.begins();
            ["a", "b", "a"].iter().for_each(|message| console.notice((*message).to_owned()));
        }
        assert_eq!(String::from_utf8(err).unwrap(), "  a\n  b\n  a\n  b\n");
    }

    #[test]
    fn the_time_left_is_known_after_a_while() {
        let left = |seconds, done, total| seconds_left(Duration::from_secs(seconds), done, total);
        assert_eq!((left(10, 25, 100), left(10, 100, 100)), (Some(30), Some(0)));
        assert_eq!((left(1, 25, 100), left(10, 0, 100), left(10, 5, 0)), (None, None, None));
    }
}
