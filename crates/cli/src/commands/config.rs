//! lvmconfig, dumpconfig and config: the settings in force, and all known settings, as text that is a valid file of
//! settings.

use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::session::Session;
use rowen_control::config::Config;
use rowen_control::settings::{KNOWN, defaults};

pub fn show(session: &mut Session<'_>, args: &Args) -> Result {
    let kind = args.text(Opt::ConfigType).or_else(|| args.text(Opt::TypeConfig));
    if kind.is_some() && args.has(Opt::ListSettings) {
        return Err(Failure::usage("Only one of --type and --list permitted."));
    }
    if args.has(Opt::Validate) {
        // Invalid settings were refused before this point.
        session.console.say("LVM configuration valid.");
        return Ok(());
    }
    let kind = if args.has(Opt::ListSettings) { "list" } else { kind.unwrap_or("current") };
    let (text, missing) = match kind {
        "list" => (list(&args.positionals), Vec::new()),
        "default" | "missing" => {
            let (text, missing) = written(&chosen(kind, &args.config), &args.positionals);
            (as_comments(&text), missing)
        }
        _ => written(&chosen(kind, &args.config), &args.positionals),
    };
    match args.text(Opt::File) {
        Some(path) => session.backend.write_text(path, &text)?,
        None => session.console.raw_out(&text),
    }
    for name in &missing {
        session.console.complain(format!("Configuration node {name} not found"));
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::Told) }
}

/// The settings that `--type` selects.
fn chosen(kind: &str, current: &Config) -> Config {
    let mut usual = defaults();
    let mut current = current.clone();
    match kind {
        "default" => usual,
        "missing" => {
            usual.retain(|entry| current.value(&entry.path).is_none());
            usual
        }
        "full" => {
            usual.add(current);
            usual
        }
        "diff" => {
            current.retain(|entry| usual.value(&entry.path) != entry.value.as_ref());
            current
        }
        // The version that introduced a setting is not known.
        "new" => Config::default(),
        _ => current,
    }
}

/// The text of these settings, and the names that do not exist.
fn written(config: &Config, names: &[String]) -> (String, Vec<String>) {
    if names.is_empty() {
        return (config.write(None).unwrap_or_default(), Vec::new());
    }
    let (mut text, mut missing) = (String::new(), Vec::new());
    for name in names {
        match config.write(Some(name)) {
            Some(found) => text.push_str(&found),
            None => missing.push(name.clone()),
        }
    }
    (text, missing)
}

/// Each setting after a `#`, as LVM shows defaults.
fn as_comments(text: &str) -> String {
    let is_setting = |line: &str| line.contains('=');
    let comment = |line: &str| match line.trim_start_matches('\t') {
        setting if is_setting(setting) => format!("{}# {setting}\n", &line[..line.len() - setting.len()]),
        _ => format!("{line}\n"),
    };
    text.lines().map(comment).collect()
}

/// The names of all settings, or of those below the named sections.
fn list(names: &[String]) -> String {
    let is_wanted = |path: &str| {
        let is_below = |name: &String| {
            path.strip_prefix(name.trim_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        names.is_empty() || names.iter().any(is_below)
    };
    KNOWN.iter().filter(|setting| is_wanted(setting.path)).map(|setting| format!("{}\n", setting.path)).collect()
}

#[cfg(test)]
mod tests {
    use crate::fake::Fake;

    #[test]
    fn the_settings_in_force_are_shown() {
        let mut world = Fake::new();
        world.settings = "backup { archive = 0 retain_min = 10 }\nactivation/volume_list = [\"vg0\", \"@t\"]\n".into();
        let mut out = |line: &str| {
            let printed = world.run(line);
            assert_eq!((printed.code, printed.err.as_str()), (0, ""), "{line}");
            printed.out
        };
        let all = "backup {\n\tarchive=0\n\tretain_min=10\n}\nactivation {\n\tvolume_list=[\"vg0\",\"@t\"]\n}\n";
        assert_eq!(out("lvmconfig"), all);
        assert_eq!(out("lvm dumpconfig backup/archive"), "archive=0\n");
        assert_eq!(
            out("lvm config --config backup/archive=1 backup/archive activation"),
            "archive=1\nactivation {\n\tvolume_list=[\"vg0\",\"@t\"]\n}\n"
        );
        assert_eq!(out("lvmconfig --type default backup/retain_min"), "# retain_min=10\n");
        assert!(out("lvmconfig --type default backup").starts_with("backup {\n\t# backup=1\n"));
        assert_eq!(out("lvm config --typeconfig full backup/archive"), "archive=0\n");
        assert_eq!(
            out("lvmconfig --type diff"),
            "backup {\n\tarchive=0\n}\nactivation {\n\tvolume_list=[\"vg0\",\"@t\"]\n}\n"
        );
        assert!(out("lvmconfig --type full backup").contains("archive=0\n\tretain_min=10\n"));
        assert!(!out("lvmconfig --type missing backup").contains("archive"));
        assert_eq!(out("lvmconfig --list tags"), "tags/hosttags\n");
        assert_eq!(out("lvmconfig --validate"), "  LVM configuration valid.\n");
        assert_eq!(out("lvmconfig -f /settings"), "");
        assert_eq!(world.files["/settings"], all);
    }

    #[test]
    fn what_is_not_there_is_reported() {
        let mut world = Fake::new();
        let printed = world.run("lvmconfig log/verbose backup/backup");
        assert_eq!(printed.code, 5);
        assert_eq!(
            printed.err,
            "  Configuration node log/verbose not found\n  Configuration node backup/backup not found\n"
        );
        assert_eq!(world.run("lvmconfig --type nonsense").code, 3);
        assert_eq!(world.run("lvmconfig --type full --list").code, 3);
    }
}
