//! What this host remembers of a store.

use super::*;

const STORE: [u8; 16] = [3; 16];

#[test]
fn what_was_seen_is_of_one_store() {
    let seen = Seen { entry: 17, hash: [5; 32] };
    let text = seen_text(seen, STORE);
    assert_eq!(seen_of(&text, STORE), Some(seen));
    assert_eq!(seen_of(&text, [4; 16]), None);
    // As older programs wrote it.
    assert_eq!(seen_of(&format!("17 {}\n", hex(&[5; 32])), STORE), Some(seen));
    for damaged in ["", "17", "17 05", "x y z", &text[..text.len() - 3]] {
        assert_eq!(seen_of(damaged, STORE), None, "{damaged}");
    }
}

#[test]
fn a_store_that_is_removed_leaves_no_file() {
    let folder = std::env::temp_dir().join(format!("rowen-known-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (conf, seen) = (folder.join("backups.conf"), folder.join("backups.seen"));
    for has_seen in [true, false] {
        fs::write(&conf, "").unwrap();
        if has_seen {
            fs::write(&seen, "").unwrap();
        }
        remove_files(&conf, &seen).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
    // As long as the store is known, what was seen of it stays.
    fs::write(&seen, "").unwrap();
    assert!(remove_files(&conf, &seen).is_err());
    assert!(seen.exists());
    fs::remove_dir_all(&folder).unwrap();
}
