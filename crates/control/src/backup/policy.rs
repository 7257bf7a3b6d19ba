//! The file of policies.

use super::retention::{Keep, Period};
use crate::config::{Config, Entry};
use crate::names;
use crate::syntax::{Error, Value, wrong};

/// What a policy names: a volume, or all volumes of a group that are no snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Group(String),
    Volume { group: String, volume: String },
}

/// Where snapshots are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    /// `[[USER@]HOST:]VG`: copies have the names of their volumes.
    pub to: String,
    /// How many are kept there; none: as many as here.
    pub keep: Option<Keep>,
    pub ssh: Option<String>,
    /// As `rowen replicate --limit` has it.
    pub limit: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    pub volumes: Vec<Wanted>,
    /// Seconds between two snapshots.
    pub every: u64,
    pub keep: Keep,
    pub targets: Vec<Target>,
    /// Full paths of the programs that run before and after its snapshots of a group.
    pub before: Option<String>,
    pub after: Option<String>,
    /// For how many seconds each of them may run.
    pub hook_timeout: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    pub policies: Vec<Policy>,
}

/// Seconds, if nothing is set.
const HOOK_TIMEOUT: u64 = 60;

/// Seconds of `90s`, `15m`, `1h`, `2d`, `1w`.
fn span(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        'w' => 7 * 24 * 3600,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    number.checked_mul(seconds)
}

fn text(entry: &Entry) -> Result<&str, Error> {
    match &entry.value {
        Some(Value::Text(text)) if !text.is_empty() => Ok(text),
        _ => Err(wrong(entry.line, format!("\"{}\" must be a string in quotes", entry.path))),
    }
}

fn program(entry: &Entry) -> Result<String, Error> {
    match text(entry)? {
        path if path.starts_with('/') => Ok(path.to_owned()),
        _ => Err(wrong(entry.line, format!("\"{}\" must be the full path of a program", entry.path))),
    }
}

fn keep(entry: &Entry) -> Result<Keep, Error> {
    let keep = Keep::parse(text(entry)?).map_err(|why| wrong(entry.line, format!("\"{}\": {why}", entry.path)))?;
    if keep.is_nothing() {
        return Err(wrong(entry.line, format!("\"{}\" keeps nothing: hourly:36, for instance", entry.path)));
    }
    Ok(keep)
}

fn wanted(entry: &Entry, word: &str) -> Result<Wanted, Error> {
    let wanted = match word.split_once('/') {
        None => Wanted::Group(word.to_owned()),
        Some((group, volume)) => Wanted::Volume { group: group.to_owned(), volume: volume.to_owned() },
    };
    let is_good = match &wanted {
        Wanted::Group(group) => names::check_form(group).is_ok(),
        Wanted::Volume { group, volume } => names::check_form(group).is_ok() && names::check_form(volume).is_ok(),
    };
    let word = word.escape_debug();
    if is_good { Ok(wanted) } else { Err(wrong(entry.line, format!("\"{word}\" is neither VG nor VG/LV"))) }
}

fn wanted_all(entry: &Entry) -> Result<Vec<Wanted>, Error> {
    let words: Vec<&String> = match &entry.value {
        Some(Value::Text(word)) => vec![word],
        Some(Value::List(items)) => {
            let texts = items.iter().filter_map(|item| if let Value::Text(word) = item { Some(word) } else { None });
            texts.collect()
        }
        _ => Vec::new(),
    };
    if words.is_empty() {
        return Err(wrong(
            entry.line,
            format!("\"{}\" must be a list of volumes, as in [\"vg0/db\", \"vg1\"]", entry.path),
        ));
    }
    words.into_iter().map(|word| wanted(entry, word)).collect()
}

impl Policies {
    /// Reads the file. A setting that nothing knows is refused, so that no misspelt one is passed over.
    pub fn read(text: &str) -> Result<Policies, Error> {
        let config = Config::read(text)?;
        let mut policies = Policies::default();
        for entry in config.entries() {
            let parts: Vec<&str> = entry.path.split('/').collect();
            match parts[..] {
                ["policies", policy, key] => policies.policy(entry, policy)?.set(entry, key)?,
                ["policies", policy, "targets", target, key] => {
                    policies.policy(entry, policy)?.set_target(entry, target, key)?;
                }
                ["policies"] if entry.value.is_none() => {}
                _ => {
                    return Err(wrong(entry.line, format!("there is no setting \"{}\"", entry.path)));
                }
            }
        }
        for policy in &mut policies.policies {
            policy.complete(&config)?;
        }
        Ok(policies)
    }

    fn policy(&mut self, entry: &Entry, name: &str) -> Result<&mut Policy, Error> {
        if names::check_volume(&format!("a-{name}-1")).is_err() || name.len() > 32 {
            let name = name.escape_debug();
            let told = format!("\"{name}\" cannot be a policy's name: it is a part of the names of snapshots");
            return Err(wrong(entry.line, told));
        }
        let at = self.policies.iter().position(|policy| policy.name == name).unwrap_or_else(|| {
            self.policies.push(Policy {
                name: name.to_owned(),
                volumes: Vec::new(),
                every: 0,
                keep: Keep::default(),
                targets: Vec::new(),
                before: None,
                after: None,
                hook_timeout: HOOK_TIMEOUT,
            });
            self.policies.len() - 1
        });
        Ok(&mut self.policies[at])
    }
}

impl Policy {
    fn set(&mut self, entry: &Entry, key: &str) -> Result<(), Error> {
        match key {
            "volumes" => self.volumes = wanted_all(entry)?,
            "keep" => self.keep = keep(entry)?,
            "every" => {
                let told = || wrong(entry.line, format!("\"{}\" must be a time: 15m, 1h, 1d", entry.path));
                let is_usual = |seconds: &u64| (60..=400 * 24 * 3600).contains(seconds);
                self.every = span(text(entry)?).filter(is_usual).ok_or_else(told)?;
            }
            "before" => self.before = Some(program(entry)?),
            "after" => self.after = Some(program(entry)?),
            "hook_timeout" => {
                let told = || wrong(entry.line, format!("\"{}\" must be a time from 1s to 1h", entry.path));
                self.hook_timeout =
                    span(text(entry)?).filter(|seconds| (1..=3600).contains(seconds)).ok_or_else(told)?;
            }
            "targets" if entry.value.is_none() => {}
            _ => return Err(wrong(entry.line, format!("there is no setting \"{}\"", entry.path))),
        }
        Ok(())
    }

    fn set_target(&mut self, entry: &Entry, name: &str, key: &str) -> Result<(), Error> {
        let at = self.targets.iter().position(|target| target.name == name).unwrap_or_else(|| {
            let (name, to) = (name.to_owned(), String::new());
            self.targets.push(Target { name, to, keep: None, ssh: None, limit: None });
            self.targets.len() - 1
        });
        let target = &mut self.targets[at];
        match key {
            "to" => target.to = text(entry)?.to_owned(),
            "keep" => target.keep = Some(keep(entry)?),
            "ssh" => target.ssh = Some(text(entry)?.to_owned()),
            "limit" => target.limit = Some(text(entry)?.to_owned()),
            _ => return Err(wrong(entry.line, format!("there is no setting \"{}\"", entry.path))),
        }
        Ok(())
    }

    /// What must be there, and what follows from it.
    fn complete(&mut self, config: &Config) -> Result<(), Error> {
        let above = format!("policies/{}/", self.name);
        let line = config.entries().iter().find(|entry| entry.path.starts_with(&above)).map_or(1, |entry| entry.line);
        let missing = |what: &str| Err(wrong(line, format!("the policy \"{}\" has no {what}", self.name)));
        if self.volumes.is_empty() {
            return missing("\"volumes\"");
        }
        let Some(shortest) = self.keep.shortest() else { return missing("\"keep\"") };
        if let Some(target) = self.targets.iter().find(|target| target.to.is_empty()) {
            return missing(&format!("\"to\" for its target \"{}\": \"root@h2:vg1\", for instance", target.name));
        }
        if self.every == 0 {
            self.every = if shortest == Period::Frequent { Period::Frequent.seconds() } else { shortest.seconds() };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# what the page shows\n\
        policies {\n databases {\n  volumes = [\"vg0/db\", \"vg1\"]\n  keep = \"hourly:36 daily:30\"\n\
        targets {\n offsite {\n to = \"root@h2:vg1\"\n keep = \"daily:90\"\n ssh = \"ssh -p 2\"\n limit = \"50m\"\n }\n }\n }\n\
        home {\n volumes = \"vg0/home\"\n every = \"1d\"\n keep = \"daily:7\"\n after = \"/bin/true\"\n hook_timeout = \"9s\"\n }\n}\n";

    #[test]
    fn policies_are_read() {
        let policies = Policies::read(FILE).unwrap().policies;
        let [databases, home] = &policies[..] else { panic!("{policies:?}") };
        assert_eq!(
            (databases.name.as_str(), databases.every, databases.keep.to_string().as_str()),
            ("databases", 3600, "hourly:36 daily:30")
        );
        assert_eq!(databases.volumes[1], Wanted::Group("vg1".into()));
        let target = &databases.targets[0];
        assert_eq!(
            (target.to.as_str(), target.keep.map(|keep| keep.to_string())),
            ("root@h2:vg1", Some("daily:90".into()))
        );
        assert_eq!((home.every, home.targets.len()), (24 * 3600, 0));
        assert_eq!((home.before.as_deref(), home.after.as_deref(), home.hook_timeout), (None, Some("/bin/true"), 9));
        assert_eq!((databases.before.as_deref(), databases.hook_timeout), (None, 60));
        assert_eq!(Policies::read("").unwrap().policies.len(), 0);
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        let of = |inner: &str| format!("policies {{\n p {{\n{inner}\n }}\n}}\n");
        for (text, line, why) in [
            (of(" volumes = [\"vg0/db\"]"), 3, "has no \"keep\""),
            (of(" keep = \"daily:1\""), 3, "has no \"volumes\""),
            (of(" volumes = [\"vg0/db\"]\n keep = \"daly:1\""), 4, "is no period"),
            (of(" volumes = [\"vg0/a/b\"]\n keep = \"daily:1\""), 3, "neither VG nor VG/LV"),
            (of(" volumes = [\"-x\"]"), 3, "neither"),
            (of(" volumes = 3"), 3, "must be a list of volumes"),
            (of(" volume = [\"vg0\"]"), 3, "there is no setting \"policies/p/volume\""),
            (of(" volumes = [\"vg0\"]\n keep = \"daily:0\""), 4, "keeps nothing"),
            (of(" every = \"5\""), 3, "must be a time"),
            (of(" every = \"5s\""), 3, "must be a time"),
            (of(" before = \"freeze\""), 3, "must be the full path of a program"),
            (of(" hook_timeout = \"2h\""), 3, "must be a time from 1s to 1h"),
            (
                of(" volumes = \"vg0\"\n keep = \"daily:1\"\n targets { a { limit = \"1m\" } }"),
                3,
                "has no \"to\" for its target \"a\"",
            ),
            ("policies { \"a b\" { keep = \"daily:1\" } }".to_owned(), 1, ""),
            ("policies {\n _tmeta { keep = \"daily:1\" } }".to_owned(), 2, "cannot be a policy's name"),
            ("other { x = 1 }".to_owned(), 1, "there is no setting \"other/x\""),
            ("policies {".to_owned(), 1, ""),
        ] {
            let error = Policies::read(&text).unwrap_err();
            assert!(error.line == line && error.why.contains(why), "{text}: {error:?}");
        }
    }
}
