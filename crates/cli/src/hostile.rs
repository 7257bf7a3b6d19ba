//! Command lines as a target for hostile bytes, on a host in memory: of the tests here, and of `fuzz/guided`.

use crate::fake::Fake;

/// A host with a group that has a volume, a snapshot, a pool and a thin volume.
pub(crate) fn start() -> Fake {
    let mut world = Fake::new();
    for line in [
        "vgcreate v /dev/ubda",
        "lvcreate -L 100M -n l --addtag t v",
        "lvcreate -s -L 20M -n s v/l",
        "lvcreate -T -L 40M v/pool",
        "lvcreate -V 1G -n thin -T v/pool",
    ] {
        assert_eq!(world.run(line).code, 0, "{line}");
    }
    world
}

/// Command lines, one a line, their words apart by blanks or tabs: every one ends with an exit code, and with a word where it is
/// refused.
pub fn command_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut world = start();
    let mut said = String::new();
    for line in text.lines().take(6) {
        let words: Vec<String> = line.split([' ', '\t']).take(24).map(str::to_owned).collect();
        let printed = world.run_words("rowen", &words, (bytes.len() % 2 == 0).then_some("y\n"));
        assert!([0, 2, 3, 5].contains(&printed.code), "{line:?}: {printed:?}");
        assert!(printed.code == 0 || !printed.err.is_empty(), "{line:?}: refused without a word");
        said += &format!("{} {} ", printed.code, printed.err.lines().next().unwrap_or_default());
    }
    said
}
