//! What commands did, as `oracle/record.sh` writes it down. This module owns that format.

use std::fmt;

/// What a command did, by where it can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Lines of standard output.
    pub out: String,
    /// Lines of standard error.
    pub err: String,
    /// Names under `/dev` that came (`+`) and went (`-`).
    pub nodes: String,
    /// The exit code.
    pub exit: String,
}

/// One of the things by which a command is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Out,
    Err,
    Nodes,
    Exit,
}

impl Stream {
    /// All of them.
    pub const ALL: [Stream; 4] = [Stream::Out, Stream::Err, Stream::Nodes, Stream::Exit];

    /// By the name that the lists use.
    pub fn parse(name: &str) -> Option<Stream> {
        Stream::ALL.into_iter().find(|stream| stream.to_string() == name)
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
            Stream::Nodes => "nodes",
            Stream::Exit => "exit",
        })
    }
}

impl Outcome {
    /// One stream's text.
    pub fn get(&self, stream: Stream) -> &str {
        match stream {
            Stream::Out => &self.out,
            Stream::Err => &self.err,
            Stream::Nodes => &self.nodes,
            Stream::Exit => &self.exit,
        }
    }

    /// One stream's text, to change it.
    pub fn get_mut(&mut self, stream: Stream) -> &mut String {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
            Stream::Nodes => &mut self.nodes,
            Stream::Exit => &mut self.exit,
        }
    }
}

/// A command of a script, and what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub script: String,
    pub command: String,
    /// Which of the same commands in its script this is, from 1.
    pub occurrence: usize,
    pub outcome: Outcome,
}

impl Step {
    /// Whether it runs a command of LVM's, and is not there to prepare or to look.
    pub fn is_of_lvm(&self) -> bool {
        ["lv", "vg", "pv"].iter().any(|prefix| self.command.starts_with(prefix))
    }
}

/// Reads a transcript. One that ends within a command is refused: its world ended early.
pub fn parse(text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut script = String::new();
    let mut current: Option<(String, Outcome)> = None;
    for (number, line) in text.lines().enumerate() {
        let misplaced = || format!("line {}: {line:?} is in no place for it", number + 1);
        if let Some((command, mut outcome)) = current.take() {
            let text = match line.split_at_checked(2) {
                Some(("O|", rest)) => Some((Stream::Out, rest)),
                Some(("E|", rest)) => Some((Stream::Err, rest)),
                Some(("N|", rest)) => Some((Stream::Nodes, rest)),
                _ => None,
            };
            if let Some((stream, rest)) = text {
                let kept = outcome.get_mut(stream);
                kept.push_str(rest);
                kept.push('\n');
                current = Some((command, outcome));
            } else if let Some(code) = line.strip_prefix("rc=") {
                outcome.exit = code.to_owned();
                let same = |step: &&Step| step.script == script && step.command == command;
                let occurrence = steps.iter().filter(same).count() + 1;
                steps.push(Step { script: script.clone(), command, occurrence, outcome });
            } else {
                return Err(misplaced());
            }
        } else if let Some(name) = line.strip_prefix("######## ") {
            script = name.to_owned();
        } else if let Some(command) = line.strip_prefix("$ ") {
            current = Some((command.to_owned(), Outcome::default()));
        } else if !line.is_empty() {
            return Err(misplaced());
        }
    }
    match current {
        Some((command, _)) => Err(format!("it ends within the command {command:?} of the script {script}")),
        None => Ok(steps),
    }
}
