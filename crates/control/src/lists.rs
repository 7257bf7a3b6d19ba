//! Which volumes may be activated on this host, and how: `activation/volume_list` and similar lists, with LVM's
//! meaning. An item is `VG`, `VG/LV`, `@tag` (of the volume or its group), or `@*` (a tag that this host has, too).

use crate::config::Config;
use serde::{Deserialize, Serialize};

/// The lists in force. A missing list allows everything; an empty one allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lists {
    /// Volumes that may be activated.
    pub active: Option<Vec<String>>,
    /// Volumes that are activated automatically (`-aay`).
    pub auto: Option<Vec<String>>,
    /// Volumes that are activated read-only, whatever their permission.
    pub read_only: Option<Vec<String>>,
    /// The tags of this host. If it has some and `active` is missing, only volumes with one of these tags may be
    /// activated.
    pub host_tags: Vec<String>,
}

/// The properties of a volume that lists compare.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub group: &'a str,
    pub group_tags: &'a [String],
    pub volume: &'a str,
    pub tags: &'a [String],
}

impl Subject<'_> {
    fn has(&self, tag: &String) -> bool {
        self.tags.contains(tag) || self.group_tags.contains(tag)
    }

    fn is_named(&self, item: &str) -> bool {
        match item.strip_prefix(self.group) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('/') == Some(self.volume),
            None => false,
        }
    }
}

impl Lists {
    /// The lists of these settings, on a host with these tags.
    pub fn of(config: &Config, host_tags: Vec<String>) -> Lists {
        let list = |name| config.texts(&format!("activation/{name}"));
        Lists {
            active: list("volume_list"),
            auto: list("auto_activation_volume_list"),
            read_only: list("read_only_volume_list"),
            host_tags,
        }
    }

    /// Whether there is no list.
    pub fn is_nothing(&self) -> bool {
        *self == Lists::default()
    }

    /// Whether it may be activated.
    pub fn allow(&self, volume: Subject<'_>) -> bool {
        match &self.active {
            Some(list) => self.holds(list, volume),
            None => self.host_tags.is_empty() || self.host_tags.iter().any(|tag| volume.has(tag)),
        }
    }

    /// Whether it may be activated automatically.
    pub fn allow_auto(&self, volume: Subject<'_>) -> bool {
        self.auto.as_ref().is_none_or(|list| self.holds(list, volume))
    }

    /// Whether it is activated read-only.
    pub fn make_read_only(&self, volume: Subject<'_>) -> bool {
        self.read_only.as_ref().is_some_and(|list| self.holds(list, volume))
    }

    fn holds(&self, list: &[String], volume: Subject<'_>) -> bool {
        list.iter().any(|item| match item.strip_prefix('@') {
            Some("*") => self.host_tags.iter().any(|tag| volume.has(tag)),
            Some(tag) => volume.has(&tag.to_owned()),
            None => volume.is_named(item),
        })
    }
}

/// The tags that files of settings give to a host of this name: `tags { hosttags = 1  always { }  sometimes { host_list
/// = ["one", "two"] } }`.
pub fn host_tags(config: &Config, host: &str) -> Vec<String> {
    let mut tags = Vec::new();
    if config.is_on("tags/hosttags") == Some(true) && !host.is_empty() {
        tags.push(host.to_owned());
    }
    for name in config.sections("tags") {
        let hosts = config.texts(&format!("tags/{name}/host_list"));
        let tag = name.trim_start_matches('@').to_owned();
        if hosts.is_none_or(|hosts| hosts.iter().any(|one| one == host)) && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(text: &str) -> Lists {
        let config = Config::read(text).unwrap();
        Lists::of(&config, host_tags(&config, "here"))
    }

    #[test]
    fn items_mean_what_they_mean_in_lvm() {
        let (group_tags, tags) = (vec!["gt".to_owned()], vec!["lt".to_owned()]);
        let volume = Subject { group: "vg0", group_tags: &group_tags, volume: "data", tags: &tags };
        let allows = |list: &str| lists(&format!("activation/volume_list = {list}")).allow(volume);
        for yes in ["[\"vg0\"]", "[\"x\", \"vg0/data\"]", "[\"@gt\"]", "[\"@lt\"]", "\"vg0\""] {
            assert!(allows(yes), "{yes}");
        }
        for no in
            ["[]", "[\"vg\"]", "[\"vg00\"]", "[\"vg0/dat\"]", "[\"vg0/\"]", "[\"@other\"]", "[\"@*\"]", "[\"\", \"@\"]"]
        {
            assert!(!allows(no), "{no}");
        }
        let nothing = lists("");
        assert!(nothing.is_nothing() && nothing.allow(volume) && nothing.allow_auto(volume));
        assert!(!nothing.make_read_only(volume));
        let both = lists("activation { auto_activation_volume_list = [] read_only_volume_list = [\"@gt\"] }");
        assert!(both.allow(volume) && !both.allow_auto(volume) && both.make_read_only(volume));
    }

    #[test]
    fn hosts_have_tags() {
        let tags = vec!["one".to_owned()];
        let of = |tags| Subject { group: "vg0", group_tags: &[], volume: "data", tags };
        let lists =
            lists("tags { hosttags = 1 @one {} two { host_list = [\"there\"] } three { host_list = [\"here\"] } }");
        assert_eq!(lists.host_tags, ["here", "one", "three"]);
        assert!(lists.allow(of(&tags)) && !lists.allow(of(&[])), "with host tags, only what has one is activated");
        let list = Lists { active: Some(vec!["@*".into()]), ..lists.clone() };
        assert!(list.allow(of(&tags)) && !list.allow(of(&[])));
    }
}
