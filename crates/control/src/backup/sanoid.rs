//! sanoid's configuration as policies: templates with their counts, and the datasets that use them.

use super::retention::{Keep, PERIODS, Period};
use crate::names;
use std::collections::BTreeMap;

/// What a section says, by its keys.
type Section<'a> = BTreeMap<&'a str, &'a str>;

/// What sanoid's own defaults say (`sanoid.defaults.conf` of version 2.1).
const DEFAULTS: &[(&str, &str)] =
    &[("frequently", "0"), ("hourly", "48"), ("daily", "90"), ("weekly", "0"), ("monthly", "6"), ("yearly", "0")];

/// sanoid's name of a period.
fn key(period: Period) -> &'static str {
    if period == Period::Frequent { "frequently" } else { period.name() }
}

fn is_yes(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "yes" | "true" | "1" | "on")
}

/// The sections of a file, in its order. The error has the line.
fn sections(text: &str) -> Result<Vec<(&str, Section<'_>)>, (usize, String)> {
    let mut sections: Vec<(&str, Section<'_>)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split(['#', ';']).next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push((name.trim(), Section::new()));
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err((number, format!("\"{}\" is neither a section nor a setting", line.escape_debug())));
        };
        let Some((_, section)) = sections.last_mut() else {
            return Err((number, "a setting is before the first section".to_owned()));
        };
        section.insert(key.trim(), value.trim());
    }
    Ok(sections)
}

/// What a dataset has: its own settings, those of its templates (the last one first), and sanoid's defaults.
fn settings<'a>(own: &Section<'a>, all: &[(&'a str, Section<'a>)]) -> (Section<'a>, Vec<&'a str>) {
    let mut found: Section<'a> = DEFAULTS.iter().copied().collect();
    let template = |name: &str| all.iter().find(|(section, _)| section.strip_prefix("template_") == Some(name));
    if let Some((_, usual)) = template("default") {
        found.extend(usual.iter());
    }
    let mut missing = Vec::new();
    let names = own.get("use_template").copied().unwrap_or_default();
    for name in names.split([',', ' ']).filter(|name| !name.is_empty()) {
        match template(name) {
            Some((_, section)) => found.extend(section.iter()),
            None => missing.push(name),
        }
    }
    found.extend(own.iter());
    (found, missing)
}

/// A volume's name of a dataset's; none: it has no name that a volume could have.
fn volume(dataset: &str) -> Option<String> {
    let (group, volume) = dataset.split_once('/').unwrap_or((dataset, ""));
    let is_good = names::check_form(group).is_ok() && (volume.is_empty() || names::check_volume(volume).is_ok());
    is_good.then(|| dataset.to_owned())
}

/// The same as text of `backup.conf`, with a remark for each thing that has no counterpart.
pub fn import(text: &str) -> Result<String, (usize, String)> {
    let all = sections(text)?;
    let mut out =
        "# Made of sanoid's configuration. Datasets became volumes of the same names: check them.\npolicies {\n"
            .to_owned();
    let mut policies: Vec<(String, Keep, Vec<String>)> = Vec::new();
    for (dataset, own) in all.iter().filter(|(name, _)| !name.starts_with("template_") && *name != "version") {
        let (found, missing) = settings(own, &all);
        missing.iter().for_each(|name| out.push_str(&format!("\t# {dataset}: there is no template \"{name}\".\n")));
        let Some(volume) = volume(dataset) else {
            out.push_str(&format!("\t# {dataset}: a volume cannot be called so; it is left out.\n"));
            continue;
        };
        let is_on = |key: &str, usual: bool| found.get(key).map_or(usual, |value| is_yes(value));
        if !is_on("autosnap", true) {
            out.push_str(&format!("\t# {dataset}: autosnap is off; it is left out.\n"));
            continue;
        }
        if !is_on("autoprune", true) {
            out.push_str(&format!(
                "\t# {dataset}: autoprune is off, and here what \"keep\" does not say is removed; it is left out.\n"
            ));
            continue;
        }
        let lost = ["pre_snapshot_script", "post_snapshot_script", "pruning_script", "process_children_only"];
        for key in lost.iter().filter(|key| found.get(**key).is_some_and(|value| !value.is_empty() && *value != "no")) {
            out.push_str(&format!("\t# {dataset}: {key} has no counterpart.\n"));
        }
        let mut keep = Keep::default();
        for period in PERIODS {
            let count = found.get(key(period)).copied().unwrap_or("0");
            match count.parse::<u64>() {
                Ok(count) => keep.set(period, count),
                Err(_) => out.push_str(&format!("\t# {dataset}: {} = {count} is no number.\n", key(period))),
            }
        }
        if keep.is_nothing() {
            out.push_str(&format!("\t# {dataset}: it keeps nothing; it is left out.\n"));
            continue;
        }
        let name = own.get("use_template").and_then(|names| names.split([',', ' ']).rfind(|name| !name.is_empty()));
        add(&mut policies, name.unwrap_or("default"), keep, volume);
    }
    for (name, keep, volumes) in &policies {
        let volumes: Vec<String> = volumes.iter().map(|volume| format!("\"{volume}\"")).collect();
        out.push_str(&format!("\t{name} {{\n\t\tvolumes = [{}]\n\t\tkeep = \"{keep}\"\n\t}}\n", volumes.join(", ")));
    }
    out.push_str("}\n");
    Ok(out)
}

/// Volumes with the same template and the same counts are in one policy.
fn add(policies: &mut Vec<(String, Keep, Vec<String>)>, template: &str, keep: Keep, volume: String) {
    if let Some((_, _, volumes)) = policies.iter_mut().find(|(name, own, _)| *own == keep && is_of(name, template)) {
        volumes.push(volume);
        return;
    }
    let word: String = template.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(24).collect();
    let count = policies.iter().filter(|(name, _, _)| is_of(name, template)).count();
    let name = if count == 0 { word } else { format!("{word}_{}", count + 1) };
    policies.push((name, keep, vec![volume]));
}

fn is_of(name: &str, template: &str) -> bool {
    let word: String = template.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(24).collect();
    name == word
        || name.strip_prefix(&word).and_then(|rest| rest.strip_prefix('_')).is_some_and(|n| n.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::Policies;

    #[test]
    fn templates_become_policies() {
        let text = "# from a page of sanoid's\n[vg0/db]\n\tuse_template = production\n[vg0/web]\n\tuse_template = production\n\thourly = 4\n\
                    [vg0/home]\nuse_template=production\n[rpool/data/deep]\n\tuse_template = production\n[vg1]\n\tuse_template = none\n\
                    [vg2/off]\n\tautosnap = no\n[vg2/kept]\nautoprune=no\n[vg3/hook]\npost_snapshot_script = /x\n\
                    [template_production]\n\tfrequently = 0\n\thourly = 36\n\tdaily = 30\n\tmonthly = 3\n\tyearly = 0\n\tautosnap = yes\n\tautoprune = yes\n";
        let out = import(text).unwrap();
        let policies = Policies::read(&out).unwrap_or_else(|e| panic!("{e:?}: {out}")).policies;
        let told: Vec<_> =
            policies.iter().map(|one| (one.name.as_str(), one.volumes.len(), one.keep.to_string())).collect();
        assert_eq!(
            told,
            [
                ("production", 2, "hourly:36 daily:30 monthly:3".to_owned()),
                ("production_2", 1, "hourly:4 daily:30 monthly:3".to_owned()),
                ("none", 1, "hourly:48 daily:90 monthly:6".to_owned()),
                ("default", 1, "hourly:48 daily:90 monthly:6".to_owned()),
            ]
        );
        for part in [
            "rpool/data/deep: a volume cannot be called so",
            "vg1: there is no template \"none\"",
            "vg2/off: autosnap is off",
            "vg2/kept: autoprune is off",
            "vg3/hook: post_snapshot_script has no counterpart",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_its_line() {
        assert_eq!(import("\nhourly = 3").unwrap_err().0, 2);
        assert_eq!(
            import("[a/b]\nnonsense").unwrap_err(),
            (2, "\"nonsense\" is neither a section nor a setting".into())
        );
        assert!(Policies::read(&import("").unwrap()).unwrap().policies.is_empty());
    }
}
