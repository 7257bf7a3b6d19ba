use super::values::options;
use super::*;
use crate::table::COMMANDS;
use std::io::Write;
use std::process::{Command as Process, Stdio};

#[test]
fn the_page_about_lvm_is_what_the_tables_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lvm.md");
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(kept == compatibility(COMMANDS), "docs/lvm.md is stale: run `make docs`");
}

#[test]
fn every_command_and_option_has_a_place_on_a_page() {
    let pages = pages(COMMANDS);
    for command in COMMANDS {
        let name =
            if command.has_own_name() { format!("{}.8", command.name) } else { format!("rowen-{}.8", command.name) };
        let page = pages.iter().find(|page| page.file == name).unwrap_or_else(|| panic!("{name} is missing"));
        for spec in options(command) {
            assert!(page.text.contains(&spec.long.replace('-', "\\-")), "{name}: --{}", spec.long);
        }
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
            assert!(page.text.contains(&format!(".SH {section}\n")), "{name}: {section}");
        }
        // What begins with a dot is a macro, and there are no others than these.
        for line in page.text.lines().filter(|line| line.starts_with('.')) {
            let word = line.split(' ').next().unwrap();
            assert!([".TH", ".SH", ".SS", ".TP", ".PP", ".br", ".nf", ".fi"].contains(&word), "{name}: {line}");
        }
    }
}

#[test]
fn the_page_in_the_browser_has_a_manual() {
    let pages = pages(COMMANDS);
    let page = pages.iter().find(|page| page.file == "rowen-web.8").unwrap();
    for word in [".SH OPTIONS\n", "\\-\\-facts FILE", "/run/rowen\\-web/facts.json", "rowen\\-web.socket"] {
        assert!(page.text.contains(word), "{word}: {}", page.text);
    }
}

/// Runs bash; `None` if bash is not installed.
fn bash_says(script: &str) -> Option<(bool, String)> {
    let mut bash = Process::new("bash")
        .arg("-s")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let done = bash.wait_with_output().unwrap();
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    Some((done.status.success(), said))
}

#[test]
fn bash_completes() {
    let ask = |words: &str| {
        let script = format!(
            "rowen() {{ if [ \"$1\" = lvs ]; then echo '  vg0/data'; else echo '  vg0'; fi; }}\n{}\n\
             COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n_rowen\necho \"${{COMPREPLY[@]}}\"\n",
            bash(COMMANDS)
        );
        let (is_well, said) = bash_says(&script).expect("bash is on every Debian");
        assert!(is_well, "{said}");
        said.trim().to_owned()
    };
    assert_eq!(ask("rowen lvcr"), "lvcreate");
    assert_eq!(ask("lvs --nohe"), "--noheadings");
    assert_eq!(ask("rowen lvs -o lv_name,lv_dev"), "lv_name,lv_device_open");
    assert_eq!(ask("lvs -o +seg_pe"), "+seg_pe_ranges");
    assert_eq!(ask("lvs --reportformat json"), "json json_std");
    assert_eq!(ask("lvs --reportformat = b"), "basic");
    assert_eq!(ask("rowen lvremove vg0/"), "vg0/data");
    assert_eq!(ask("vgs vg"), "vg0");
    assert_eq!(ask("lvcreate -L ''"), "");
}
