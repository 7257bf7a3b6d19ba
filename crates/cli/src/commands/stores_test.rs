//! What is passed on to `rowen-remote`, and what is refused before that.

use crate::fake::Fake;

#[test]
fn options_are_passed_on_and_mistakes_are_refused() {
    let mut fake = Fake::new();
    for (line, passed) in [
        ("push vg0/db-tue s3main --as mail --full", "rowen-remote push vg0/db-tue s3main --full --as=mail"),
        ("pull s3main db@tue vg1/db -n x", "rowen-remote pull s3main db@tue vg1/db --name=x"),
        ("store add s3main s3://b/p --single-writer", "rowen-remote store add s3main s3://b/p --singlewriter"),
        ("store add s3main s3://b/p --key-file /k", "rowen-remote store add s3main s3://b/p --keyfile=/k"),
        ("store add s3main s3://b/p --plain", "rowen-remote store add s3main s3://b/p --plain"),
        ("store addkey s3main /k", "rowen-remote store addkey s3main /k"),
        ("store gc s3main --dry-run --older 3d", "rowen-remote store gc s3main --dryrun --older=3d"),
        ("store list --json", "rowen-remote store list --json"),
    ] {
        let printed = fake.run(&format!("rowen {line}"));
        assert_eq!((printed.code, fake.tools.pop().as_deref()), (0, Some(passed)), "{line}: {}", printed.err);
    }
    for line in ["push vg0/db-tue", "pull s3main db@tue", "store", "store empty s3main", "store list --full"] {
        let printed = fake.run(&format!("rowen {line}"));
        assert!(printed.code == 3 && fake.tools.is_empty(), "{line}: {}", printed.err);
    }
    // What the program says ends this one, too.
    fake.failing_tool = Some("rowen-remote");
    assert_eq!(fake.run("rowen store gc s3main").code, 8);
}
