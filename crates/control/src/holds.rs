//! Names of holds, as the tags of a snapshot have them.

use crate::names;
use rowen_engine::group::HOLD;

/// A hold of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    pub name: &'a str,
    /// When it ends by itself, in seconds since 1970; none: when it is released.
    pub until: Option<u64>,
}

impl<'a> Hold<'a> {
    /// What a tag says; none: it is no hold, or has no name that a hold could have.
    pub fn of_tag(tag: &'a str) -> Option<Hold<'a>> {
        let text = tag.strip_prefix(HOLD)?;
        let (name, until) = match text.split_once(':') {
            Some((name, until)) => (name, Some(until.parse().ok()?)),
            None => (text, None),
        };
        names::check_form(name).ok()?;
        Some(Hold { name, until })
    }

    pub fn tag(&self) -> String {
        match self.until {
            Some(until) => format!("{HOLD}{}:{until}", self.name),
            None => format!("{HOLD}{}", self.name),
        }
    }
}

/// All holds that these tags have. One that nobody can have made by a command holds nevertheless, under the name that it has.
pub fn holds(tags: &[String]) -> impl Iterator<Item = Hold<'_>> {
    tags.iter().filter_map(|tag| {
        let name = tag.strip_prefix(HOLD)?;
        Some(Hold::of_tag(tag).unwrap_or(Hold { name, until: None }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_hold_with_a_name_and_perhaps_an_end() {
        let hold = |name, until| Some(Hold { name, until });
        assert_eq!(Hold::of_tag("hold=a.b-c"), hold("a.b-c", None));
        assert_eq!(Hold::of_tag("hold=a:17"), hold("a", Some(17)));
        for tag in ["hold=", "hold", "held=a", "hold=a:", "hold=a:b", "hold=a:1:2", "hold=-a", "hold=a/b", "hold=a:-1"]
        {
            assert_eq!(Hold::of_tag(tag), None, "{tag}");
        }
        let tags = ["x", "hold=a:17", "hold=a/b", "hold=c"].map(str::to_owned);
        let found: Vec<_> = holds(&tags).map(|hold| (hold.name, hold.until)).collect();
        assert_eq!(found, [("a", Some(17)), ("a/b", None), ("c", None)]);
        assert_eq!(
            (hold("a", Some(17)).unwrap().tag(), hold("c", None).unwrap().tag()),
            ("hold=a:17".into(), "hold=c".into())
        );
    }
}
