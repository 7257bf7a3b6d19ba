//! The parts of the shell scripts for LVM2's own tests that need no root: what they call is replaced.
#![allow(clippy::unwrap_used, reason = "tests end where something unexpected happens")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory that ends with its scope.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("rowen-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

fn lvm2(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lvm2").join(name)
}

/// A losetup that finds and attaches in two steps, as the kernel lets everybody do. Devices are files in its directory.
const SLOW_LOSETUP: &str = r#"#!/bin/bash
cd "$(dirname "$0")" || exit 1
words="$*"
case $words in *-s\ * | *-s) echo "invalid option" >&2; exit 1 ;; esac
case $words in
--find\ --show\ * | -f)
    number=0
    while [ -e "loop$number" ]; do number=$((number + 1)); done
    sleep 0.05
    [ "$words" = -f ] || echo "${*: -1}" >>"loop$number"
    echo "/dev/loop$number"
    ;;
/dev/*) echo "$2" >>"${1#/dev/}" ;;
*) exit 1 ;;
esac
"#;

/// Scripts side by side look for a device as LVM2's suite does; whose file each device has then.
fn devices_of(scratch: &Scratch, losetup: &Path, scripts: usize) -> Vec<String> {
    let script = format!(
        "losetup={}; LOOP=$($losetup -s -f \"$1\" 2>/dev/null) || {{ LOOP=$($losetup -f) && $losetup \"$LOOP\" \"$1\"; }}; \
         test -n \"$LOOP\"",
        losetup.display()
    );
    let looking: Vec<_> = (0..scripts)
        .map(|number| {
            let mut bash = Command::new("bash");
            bash.args(["-c", &script, "bash", &format!("file{number}")]);
            bash.env("LOSETUP", scratch.0.join("slow")).stdin(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut script in looking {
        assert!(script.wait().unwrap().success());
    }
    let devices = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().path());
    let devices = devices.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("loop"));
    devices.map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn scripts_side_by_side_get_loop_devices_of_their_own() {
    const SCRIPTS: usize = 6;
    let scratch = Scratch::new("losetup");
    scratch.script("slow", SLOW_LOSETUP);
    let ours = scratch.script("ours", &fs::read_to_string(lvm2("losetup")).unwrap());
    let files = devices_of(&scratch, &ours, SCRIPTS);
    let own: BTreeSet<&String> = files.iter().collect();
    assert!(own.len() == SCRIPTS && files.iter().all(|file| file.lines().count() == 1), "{files:?}");
}

#[test]
fn other_uses_of_losetup_are_its_own() {
    let scratch = Scratch::new("losetup-words");
    let said = scratch.script("said", "#!/bin/sh\necho \"$@\"\n");
    for words in [&["-d", "/dev/loop3"][..], &["-f"], &["-a"], &["-c", "/dev/loop3"]] {
        let output = Command::new(lvm2("losetup")).args(words).env("LOSETUP", &said).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), words.join(" "));
    }
}

#[test]
fn source_packages_come_from_where_packages_come_from() {
    let scratch = Scratch::new("source-lists");
    let (etc, out) = (scratch.0.join("etc"), scratch.0.join("out"));
    fs::create_dir_all(etc.join("sources.list.d")).unwrap();
    fs::create_dir_all(&out).unwrap();
    fs::write(etc.join("sources.list"), "# deb http://off/\n deb [arch=amd64] http://one/debian stable main\n")
        .unwrap();
    fs::write(
        etc.join("sources.list.d/two.list"),
        "deb-src http://two/debian stable main\ndeb http://two/debian stable main\n",
    )
    .unwrap();
    let deb822 = "Types: deb\nURIs: http://three/debian\nSuites: stable\nSigned-By: /key\n\nTypes: deb deb-src\nURIs: http://four/\n";
    fs::write(etc.join("sources.list.d/three.sources"), deb822).unwrap();
    let status = Command::new(lvm2("source-lists")).args([&etc, &out]).status().unwrap();
    assert!(status.success());
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(read("sources.list"), "deb-src [arch=amd64] http://one/debian stable main\n");
    assert_eq!(read("two.list"), "deb-src http://two/debian stable main\n");
    assert_eq!(
        read("three.sources"),
        "Types: deb-src\nURIs: http://three/debian\nSuites: stable\nSigned-By: /key\n\nTypes: deb-src\nURIs: http://four/\n"
    );
}
