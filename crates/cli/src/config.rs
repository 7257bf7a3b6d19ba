//! What `--config` says, in the syntax of LVM's configuration: `section/key=value`, `section { key=value ... }`. This module
//! reads any settings; reports obey some of them, and the rest is about things that Rowen does not have.

use std::collections::BTreeMap;

/// Settings by their path, `section/key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    values: BTreeMap<String, String>,
}

/// Where the text stops making sense (a byte, counted from 1), and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub at: usize,
    pub why: &'static str,
}

impl ConfigError {
    /// LVM's sentences.
    pub fn lines(self) -> String {
        let ConfigError { at, why } = self;
        format!("Parse error at byte {at} (line 1): {why}\nFailed to set overridden configuration entries.")
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Config {
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        let mut reader = Reader { text, at: 0 };
        if reader.is_at_end() {
            return Err(reader.wrong("unexpected token"));
        }
        while !reader.is_at_end() {
            config.item(&mut reader, "", 0)?;
        }
        Ok(config)
    }

    /// The value of a setting that was given.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.values.get(path).map(String::as_str)
    }

    /// Settings of `other` come before these.
    pub fn add(&mut self, other: Config) {
        self.values.extend(other.values);
    }

    fn item(&mut self, reader: &mut Reader<'_>, above: &str, depth: usize) -> Result<(), ConfigError> {
        const DEEPEST: usize = 16;
        let name = reader.name()?;
        let path = if above.is_empty() { name } else { format!("{above}/{name}") };
        if reader.take('=') {
            let value = reader.value()?;
            self.values.insert(path, value);
            return Ok(());
        }
        if depth >= DEEPEST || !reader.take('{') {
            return Err(reader.wrong("unexpected token"));
        }
        while !reader.take('}') {
            self.item(reader, &path, depth + 1)?;
        }
        Ok(())
    }
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    fn take(&mut self, wanted: char) -> bool {
        self.skip_blanks();
        let is_there = self.rest().starts_with(wanted);
        self.at += if is_there { wanted.len_utf8() } else { 0 };
        is_there
    }

    fn wrong(&self, why: &'static str) -> ConfigError {
        ConfigError { at: self.at + 1, why }
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> Option<String> {
        self.skip_blanks();
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = rest[..end].to_owned();
        self.at += end;
        (!word.is_empty()).then_some(word)
    }

    fn name(&mut self) -> Result<String, ConfigError> {
        let name = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.'));
        name.ok_or_else(|| self.wrong("unexpected token"))
    }

    fn value(&mut self) -> Result<String, ConfigError> {
        self.skip_blanks();
        match self.rest().chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let begun = self.at + 1;
                // LVM takes a text without its second quote as one that ends where the line does.
                let length = self.text[begun..].find(quote);
                let end = length.map_or(self.text.len(), |length| begun + length);
                self.at = (end + 1).min(self.text.len());
                Ok(self.text[begun..end].to_owned())
            }
            Some('[') => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.take(']') {
                    items.push(self.value()?);
                    let _more = self.take(',');
                }
                Ok(items.join(","))
            }
            _ => self
                .word(|c| !c.is_whitespace() && !matches!(c, '{' | '}' | '[' | ']' | ',' | '=' | '#'))
                .ok_or_else(|| self.wrong("expected a value")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms() {
        let config =
            Config::parse("report/time_format=\"%s\" report { headings = 0 sub { x=[1, \"2\"] } } a=b").unwrap();
        assert_eq!(config.get("report/time_format"), Some("%s"));
        assert_eq!(config.get("report/headings"), Some("0"));
        assert_eq!(config.get("report/sub/x"), Some("1,2"));
        assert_eq!(config.get("a"), Some("b"));
        assert!(Config::parse("activation { retry_deactivation = 1} ").is_ok());
    }

    #[test]
    fn what_makes_no_sense() {
        for (text, at, why) in [
            ("report {", 9, "unexpected token"),
            ("report/headings=", 17, "expected a value"),
            ("garbage", 8, "unexpected token"),
            ("=3", 1, "unexpected token"),
            ("a/b=3}", 6, "unexpected token"),
            ("a/b=[1,2", 9, "expected a value"),
            ("", 1, "unexpected token"),
        ] {
            assert_eq!(Config::parse(text), Err(ConfigError { at, why }), "{text}");
        }
        let deep = "a{".repeat(100_000);
        assert!(Config::parse(&deep).is_err());
    }
}
