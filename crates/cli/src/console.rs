//! A command's output and input. Every line begins with two blanks, as in LVM. If the reader of the output is gone, the
//! command continues and its output is dropped. Answers to questions and the lines of a shell are read from standard
//! input, terminal or not, as in LVM: `echo y | lvremove ...` works.

use rowen_control::status::duration;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The height of a terminal that does not report one.
const USUAL_HEIGHT: usize = 24;

/// A command's standard streams; tests use buffers.
pub struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// Answers to questions. None: there is no user to ask.
    answers: Option<&'a mut dyn BufRead>,
    /// `-qq`: no messages about what was done.
    is_silent: bool,
    /// The reader of standard output is gone.
    is_unread: bool,
    /// Whether `err` is a terminal, on which a line can be overwritten.
    shows_progress: bool,
    progress_is_shown: bool,
    /// When progress was first shown, and its value then.
    progress_since: Option<(Instant, u64)>,
    /// Notices of servers that this command has printed.
    noticed: Vec<String>,
    /// Lines of the screen.
    height: usize,
    /// Whether standard output and standard input are terminals.
    shows_output: bool,
    reads_terminal: bool,
}

/// The seconds to the end at this rate. None at the beginning.
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

    /// Shows progress if standard error is a terminal, and finds out the height of the terminal of standard output.
    pub fn with_progress(mut self) -> Self {
        // A very small height means that the terminal's size was never set.
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

    /// The height of the terminal. Without a terminal, a usual height.
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
        // The reader is gone, and the text is dropped.
        self.is_unread |= self.out.write_all(text.as_bytes()).is_err();
    }

    /// Writes bytes to standard output for a program. An error means that it did not get all.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.clear_progress();
        self.out.write_all(bytes)
    }

    /// Writes all buffered bytes.
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

    /// Prints a server's notice. If several requests of a command get the same notice, it is printed once.
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

    /// Shows the progress of a long request.
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

    /// Asks a question (given without its `[y/n]: `). Without an answer it is "no", and the question is printed all the
    /// same.
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

    /// Whether the reader of standard output is gone. A command that prints without an end stops then.
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
