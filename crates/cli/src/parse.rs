//! Parses a command line as getopt_long does: options after operands, joined letters (`-prw`, `-L40960K`),
//! `--option=value`, unique prefixes of long options, `--` as the end of options. Values are checked against their kind
//! here.

use crate::failure::{Failure, Result};
use crate::options::{COMMON, Kind, Opt, Spec};
use rowen_control::config::Config;
use rowen_control::sizes::{Extents, Sign, Size, SizeError};
use rowen_control::{names, units::Units};

/// A parsed command line: every value fits its option's kind.
#[derive(Debug, Default)]
pub struct Args {
    options: Vec<(Opt, String)>,
    pub positionals: Vec<String>,
    /// The settings of `--config`, and under them those of the files once the command runs.
    pub config: Config,
}

/// What `-a` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    Yes,
    /// Only volumes with autoactivation.
    Auto,
    No,
}

impl Args {
    pub fn has(&self, option: Opt) -> bool {
        self.count(option) > 0
    }

    pub fn count(&self, option: Opt) -> usize {
        self.options.iter().filter(|(given, _)| *given == option).count()
    }

    /// The option's last value.
    pub fn text(&self, option: Opt) -> Option<&str> {
        self.options.iter().rev().find(|(given, _)| *given == option).map(|(_, value)| value.as_str())
    }

    /// All of the option's values, in order.
    pub fn texts(&self, option: Opt) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |(given, _)| *given == option).map(|(_, value)| value.as_str())
    }

    pub fn tags(&self, option: Opt) -> Vec<String> {
        self.texts(option).filter_map(names::tag).map(str::to_owned).collect()
    }

    pub fn size(&self, option: Opt) -> Option<Size> {
        let (Kind::Size(unit) | Kind::Change(unit)) = option.spec().kind else { return None };
        Size::parse(self.text(option)?, unit).ok()
    }

    pub fn extents(&self, option: Opt) -> Option<Extents> {
        Extents::parse(self.text(option)?).ok()
    }

    /// A whole number; the sign of one that may have one is dropped.
    pub fn number(&self, option: Opt) -> Option<u64> {
        self.text(option)?.trim_start_matches(['+', '-']).parse().ok()
    }

    pub fn yes_no(&self, option: Opt) -> Option<bool> {
        self.text(option).map(|value| value == "y")
    }

    pub fn activation(&self) -> Option<Activation> {
        activation(self.text(Opt::Activate)?)
    }

    /// `-p`: whether read-only was asked for.
    pub fn read_only(&self) -> Option<bool> {
        self.text(Opt::Permission).map(|value| value == "r")
    }

    pub fn units(&self) -> Units {
        let setting = self.config.text("global/units");
        self.text(Opt::UnitsShown).or(setting.as_deref()).and_then(Units::parse).unwrap_or_default()
    }

    /// The options that were given, in order, each with its value.
    pub fn given(&self) -> &[(Opt, String)] {
        &self.options
    }

    /// Whether operands or criteria name anything.
    pub fn names_something(&self) -> bool {
        !self.positionals.is_empty() || self.has(Opt::Select)
    }

    /// Whether an option answers all questions.
    pub fn assumes_yes(&self) -> bool {
        self.has(Opt::Yes) || self.has(Opt::Force)
    }
}

/// The settings of `--config`, which must not be empty.
fn read_config(text: &str) -> Result<Config> {
    let refused = |why: String| Failure::usage(format!("{why}\nFailed to set overridden configuration entries."));
    let config = Config::read(text).map_err(|error| refused(error.sentence("--config")))?;
    match config.entries().is_empty() {
        true => Err(refused("Parse error at byte 1 (line 1): unexpected token".to_owned())),
        false => Ok(config),
    }
}

fn activation(value: &str) -> Option<Activation> {
    match value {
        "y" | "ly" | "ey" | "sy" | "aly" | "aey" | "asy" | "l" | "e" | "s" => Some(Activation::Yes),
        "ay" | "a" => Some(Activation::Auto),
        "n" | "ln" | "en" | "aln" | "aen" => Some(Activation::No),
        _ => None,
    }
}

/// The command's name, for messages, and its own options.
#[derive(Clone, Copy)]
struct Grammar<'a> {
    tool: &'a str,
    options: &'a [Opt],
}

/// Parses `words`, which follow the name of the command `tool`. Its options are these and those of every command.
pub fn parse(tool: &str, options: &[Opt], words: &[String]) -> Result<Args> {
    let grammar = Grammar { tool, options };
    let mut args = Args::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, joined) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            // As LVM, which has no hyphens in its options: `--use-policies` is `--usepolicies`.
            let name = name.replace('-', "");
            if name.is_empty() && joined.is_none() {
                args.positionals.extend(words.by_ref().cloned());
                break;
            }
            let spec = find_long(grammar, &name)?;
            let value = match (spec.kind, joined) {
                (Kind::Flag, Some(_)) => {
                    let long = spec.long;
                    return Err(Failure::Getopt(format!("{tool}: option '--{long}' doesn't allow an argument")));
                }
                (Kind::Flag, None) => String::new(),
                (_, Some(value)) => value,
                (_, None) => words.next().cloned().ok_or_else(|| {
                    Failure::Getopt(format!("{}: option '--{}' requires an argument", grammar.tool, spec.long))
                })?,
            };
            args.options.push((spec.id, checked(spec, value)?));
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            parse_letters(grammar, letters, &mut words, &mut args)?;
        } else {
            args.positionals.push(word.clone());
        }
    }
    refuse_repeated(&args)?;
    let given: Vec<Config> = args.texts(Opt::Config).map(read_config).collect::<Result<_>>()?;
    given.into_iter().for_each(|config| args.config.add(config));
    Ok(args)
}

/// As LVM: an option with two values is refused, unless it may repeat.
fn refuse_repeated(args: &Args) -> Result {
    for (at, (option, _)) in args.options.iter().enumerate() {
        if !option.may_repeat() && args.options[..at].iter().any(|(other, _)| other == option) {
            let spec = option.spec();
            let letter = spec.short.map_or_else(String::new, |letter| format!("-{letter}/"));
            let line = format!("Option {letter}--{} may not be repeated.", spec.long);
            return Err(Failure::Value { why: None, line });
        }
    }
    Ok(())
}

fn parse_letters(
    grammar: Grammar<'_>,
    letters: &str,
    words: &mut std::slice::Iter<'_, String>,
    args: &mut Args,
) -> Result {
    for (at, letter) in letters.char_indices() {
        let spec = all(grammar)
            .find(|spec| spec.short == Some(letter))
            .ok_or_else(|| Failure::Getopt(format!("{}: invalid option -- '{letter}'", grammar.tool)))?;
        if spec.kind == Kind::Flag {
            args.options.push((spec.id, String::new()));
            continue;
        }
        let rest = &letters[at + letter.len_utf8()..];
        let value = match rest {
            "" => words.next().cloned().ok_or_else(|| {
                Failure::Getopt(format!("{}: option requires an argument -- '{letter}'", grammar.tool))
            })?,
            joined => joined.to_owned(),
        };
        args.options.push((spec.id, checked(spec, value)?));
        return Ok(());
    }
    Ok(())
}

fn all(grammar: Grammar<'_>) -> impl Iterator<Item = &'static Spec> {
    grammar.options.iter().chain(COMMON).map(|option| option.spec())
}

fn find_long(grammar: Grammar<'_>, name: &str) -> Result<&'static Spec> {
    if let Some(exact) = all(grammar).find(|spec| spec.long == name) {
        return Ok(exact);
    }
    let mut candidates: Vec<&Spec> =
        all(grammar).filter(|spec| !name.is_empty() && spec.long.starts_with(name)).collect();
    // As LVM lists them: those without a letter first, then by letter.
    candidates.sort_by_key(|spec| {
        (spec.short.map(|short| (short.to_ascii_lowercase(), short.is_ascii_uppercase())), spec.long)
    });
    match candidates[..] {
        [only] => Ok(only),
        [] => Err(Failure::Getopt(format!("{}: unrecognized option '--{name}'", grammar.tool))),
        _ => {
            let longs: Vec<String> = candidates.iter().map(|spec| format!(" '--{}'", spec.long)).collect();
            Err(Failure::Getopt(format!(
                "{}: option '--{name}' is ambiguous; possibilities:{}",
                grammar.tool,
                longs.concat()
            )))
        }
    }
}

/// The value, if it is one of the option's kind.
fn checked(spec: &Spec, value: String) -> Result<String> {
    let refused = |why: Option<String>| {
        let line = format!("Invalid argument for --{}: {value}", spec.long);
        Err(Failure::Value { why, line })
    };
    let wrong = match spec.kind {
        Kind::Flag | Kind::Text(_) => return Ok(value),
        Kind::Size(unit) => check_size(&value, unit).and_then(|sign| check_sign("Size", sign, Sign::Minus)),
        Kind::Change(unit) => check_size(&value, unit).map(drop),
        Kind::Extents => check_extents(&value).and_then(|sign| check_sign("Extents", sign, Sign::Minus)),
        Kind::ExtentsChange => check_extents(&value).map(drop),
        Kind::Units => {
            // LVM checks units only when the command runs, hence the other form of message.
            let is_unit = Units::parse(&value).is_some();
            return if is_unit { Ok(value) } else { Err(Failure::usage("Invalid units specification")) };
        }
        Kind::Config => return read_config(&value).map(|_| value),
        Kind::Number if value.parse::<u64>().is_ok() => return Ok(value),
        Kind::SignedNumber if value.trim_start_matches(['+', '-']).parse::<u64>().is_ok() => return Ok(value),
        Kind::ReadAhead if matches!(value.as_str(), "auto" | "none") || value.parse::<u64>().is_ok() => {
            return Ok(value);
        }
        Kind::YesNo if value == "y" || value == "n" => return Ok(value),
        Kind::Activation if activation(&value).is_some() => return Ok(value),
        Kind::Permission if value == "r" || value == "rw" => return Ok(value),
        Kind::Tag if names::tag(&value).is_some() => return Ok(value),
        Kind::Word(words) if words.contains(&value.as_str()) => return Ok(value),
        // LVM knows more kinds than can be created, and warns before it refuses.
        Kind::Word(_) if spec.id == Opt::Type => {
            return refused(Some(format!("WARNING: Unrecognised segment type {value}")));
        }
        Kind::YesNo
        | Kind::Number
        | Kind::SignedNumber
        | Kind::ReadAhead
        | Kind::Activation
        | Kind::Permission
        | Kind::Tag
        | Kind::Word(_) => return refused(None),
    };
    match wrong {
        Ok(()) => Ok(value),
        Err(why) => refused(why),
    }
}

/// Why a value is refused, if there is a reason.
type Why = Option<String>;

/// The sign of a size.
fn check_size(text: &str, unit: char) -> std::result::Result<Sign, Why> {
    Size::parse(text, unit).map(|size| size.sign).map_err(|why| Some(why.to_string()))
}

/// The sign of a number of extents, or of a share.
fn check_extents(text: &str) -> std::result::Result<Sign, Why> {
    Extents::parse(text).map(|extents| extents.sign).map_err(|why| match why {
        // LVM prints only the line that names the value.
        SizeError::NoSize => None,
        other => Some(other.to_string()),
    })
}

fn check_sign(what: &str, sign: Sign, refused: Sign) -> std::result::Result<(), Why> {
    if sign != refused {
        return Ok(());
    }
    let wrong = if sign == Sign::Plus { "positive" } else { "negative" };
    Err(Some(format!("{what} may not be {wrong}.")))
}

/// Refuses a size or extents with that sign, for a command in which the sign has no meaning.
pub fn refuse_sign(args: &Args, refused: Sign) -> Result {
    for (option, what) in [(Opt::NewSize, "Size"), (Opt::NewExtents, "Extents")] {
        let sign = match option {
            Opt::NewSize => args.size(option).map(|size| size.sign),
            _ => args.extents(option).map(|extents| extents.sign),
        };
        if let Some(Err(why)) = sign.map(|sign| check_sign(what, sign, refused)) {
            let value = args.text(option).unwrap_or_default();
            return Err(Failure::Value {
                why,
                line: format!("Invalid argument for --{}: {value}", option.spec().long),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "parse_test.rs"]
mod tests;
