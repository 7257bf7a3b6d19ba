//! Failures of a command: the exit codes that LVM's clients rely on, and the messages for standard error.

/// Exit codes. Nothing else is ever returned.
pub mod exit {
    pub const OK: u8 = 0;
    /// `rowen status` has answered and found a problem.
    pub const UNHEALTHY: u8 = 1;
    /// There is no such command.
    pub const NO_COMMAND: u8 = 2;
    /// The command line is invalid.
    pub const USAGE: u8 = 3;
    /// A file of settings cannot be read.
    pub const NOT_BEGUN: u8 = 4;
    /// Everything else: not found, exists, in use, no space, refused.
    pub const FAILED: u8 = 5;
}

/// Why a command stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An error in the form of getopt: `line` is printed as it is.
    Getopt(String),
    /// An option's value is invalid: the reason, if any, and the line that names option and value.
    Value { why: Option<String>, line: String },
    /// Each value is valid, but the command line is not.
    Usage(Vec<String>),
    /// No form of the command fits.
    NoForm,
    /// The command takes no operands, but has this one.
    Operand(String),
    /// This form of the command does not have the option.
    OtherForm(&'static str),
    /// The settings cannot be read, so nothing was begun.
    NotBegun(Vec<String>),
    /// The request failed: the lines of the message.
    Failed(Vec<String>),
    /// It failed, and the message has been printed.
    Told,
    /// Another program failed, and has said why: its exit code.
    Said(u8),
    /// Nothing failed, but the reported state has problems.
    Unhealthy,
    /// Nothing failed: the command line has `--help`, and only the help is printed.
    Shown(Vec<String>),
}

pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    /// A failed request with a message of one or more lines.
    pub fn failed(message: impl AsRef<str>) -> Failure {
        Failure::Failed(message.as_ref().lines().map(str::to_owned).collect())
    }

    /// Unreadable settings, with a message of one or more lines.
    pub fn not_begun(message: impl AsRef<str>) -> Failure {
        Failure::NotBegun(message.as_ref().lines().map(str::to_owned).collect())
    }

    /// An invalid command line, with a message of one line.
    pub fn usage(message: impl AsRef<str>) -> Failure {
        Failure::Usage(message.as_ref().lines().map(str::to_owned).collect())
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Getopt(_)
            | Failure::Value { .. }
            | Failure::Usage(_)
            | Failure::Operand(_)
            | Failure::OtherForm(_)
            | Failure::NoForm => exit::USAGE,
            Failure::NotBegun(_) => exit::NOT_BEGUN,
            Failure::Failed(_) | Failure::Told => exit::FAILED,
            Failure::Said(code) => *code,
            Failure::Unhealthy => exit::UNHEALTHY,
            Failure::Shown(_) => exit::OK,
        }
    }

    /// The lines for standard error, with their leading blanks.
    pub fn lines(&self, command: &str) -> Vec<String> {
        const PARSING: &str = "  Error during parsing of command line.";
        match self {
            Failure::Getopt(line) => vec![line.clone(), PARSING.to_owned()],
            Failure::Value { why, line } => {
                let why = why.iter().map(|why| format!("  {why}"));
                why.chain([format!("  {line}"), PARSING.to_owned()]).collect()
            }
            Failure::Usage(lines) => {
                let hint = format!("  Run `{command} --help' for more information.");
                lines.iter().map(|line| format!("  {line}")).chain([hint]).collect()
            }
            Failure::Operand(word) => vec![format!("  Command does not accept argument: {word}.")],
            Failure::OtherForm(option) => vec![format!("  Command does not accept option: --{option}.")],
            Failure::NoForm => {
                vec![format!(
                    "  No command with matching syntax recognised.  Run '{command} --help' for more information."
                )]
            }
            Failure::Failed(lines) | Failure::NotBegun(lines) | Failure::Shown(lines) => {
                lines.iter().map(|line| format!("  {line}")).collect()
            }
            Failure::Told | Failure::Said(_) | Failure::Unhealthy => Vec::new(),
        }
    }
}
