//! The words of a command line. `rowen` knows the same options, with help for each: its table of commands is what users read.

use crate::failure::{Result, usage};

/// Options with a value, and those without.
const VALUES: [&str; 6] = ["--as", "--name", "--endpoint", "--region", "--older", "--keyfile"];
const FLAGS: [&str; 8] = ["--json", "--dryrun", "--singlewriter", "--data", "--full", "--plain", "--quiet", "--help"];

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    pub positionals: Vec<String>,
    options: Vec<(String, Option<String>)>,
}

impl Arguments {
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Arguments> {
        let mut arguments = Arguments::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let word = match word.as_str() {
                "-n" => "--name".to_owned(),
                "-q" => "--quiet".to_owned(),
                _ => word,
            };
            if !word.starts_with("--") {
                arguments.positionals.push(word);
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            // As `rowen` reads them: `--single-writer` is `--singlewriter`.
            let name = format!("--{}", name.replace('-', ""));
            if VALUES.contains(&name.as_str()) {
                let value = value.or_else(|| words.next());
                let value = value.ok_or_else(|| usage(format!("Option {name} needs a value.")))?;
                arguments.options.push((name, Some(value)));
            } else if FLAGS.contains(&name.as_str()) && value.is_none() {
                arguments.options.push((name, None));
            } else {
                return Err(usage(format!("There is no option {}.", name.escape_debug())));
            }
        }
        Ok(arguments)
    }

    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| option == name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(option, _)| option == name).and_then(|(_, value)| value.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn words_are_understood_or_refused() {
        let arguments = parse("push vg0/db-tue s3main --as other -n=x --full").expect("it is right");
        assert_eq!(arguments.positionals, ["push", "vg0/db-tue", "s3main", "-n=x"]);
        assert!(arguments.text("--as") == Some("other") && arguments.has("--full"));
        assert_eq!(parse("push --no-such").expect_err("there is none").code, crate::failure::USAGE);
        assert_eq!(parse("push --as").expect_err("it has no value").code, crate::failure::USAGE);
        assert_eq!(parse("list --json=yes").expect_err("it takes none").code, crate::failure::USAGE);
    }
}
