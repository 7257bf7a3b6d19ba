//! The tests of every crate are part of `.ci/run`: nobody sees that a new crate was forgotten there.

use super::pages_test::root;
use std::fs;

/// The packages of the workspace, out of the members' manifests.
fn packages() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    let folders = members.split('"').skip(1).step_by(2);
    let name_in = |folder: &str| {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"').to_owned()
    };
    folders.map(name_in).collect()
}

/// The packages of which a script runs the tests.
fn tested(script: &str) -> Vec<&str> {
    let lines = script.lines().filter(|line| line.contains("$cargo test"));
    lines.flat_map(|line| line.split(" -p ").skip(1)).filter_map(|rest| rest.split_whitespace().next()).collect()
}

#[test]
fn the_tests_of_every_crate_are_run() {
    let script = fs::read_to_string(root().join(".ci/run")).unwrap();
    let (packages, tested) = (packages(), tested(&script));
    assert!(packages.len() > 5, "{packages:?}");
    let forgotten: Vec<_> = packages.iter().filter(|name| !tested.contains(&name.as_str())).collect();
    assert!(forgotten.is_empty(), ".ci/run does not run the tests of {forgotten:?}");
}

#[test]
fn a_crate_that_is_not_named_counts_as_forgotten() {
    let script = "suite \"a\" $cargo test -p one -p two --lib\n# -p three\nsuite \"b\" $cargo build -p four\n";
    assert_eq!(tested(script), ["one", "two"]);
}
