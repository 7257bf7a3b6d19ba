use super::*;

fn entry(byte: u8, path: &str) -> Entry {
    Entry { uuid: Uuid([byte; 16]), path: PathBuf::from(path) }
}

#[test]
fn what_is_written_is_read_again() {
    let entries = vec![entry(1, "/dev/sdb"), entry(0xfe, "/srv/with blanks/pv a.img"), entry(0, "/p\u{e4}th")];
    assert_eq!(parse(&format(&entries, b"")), entries);
}

#[test]
fn lines_that_make_no_sense_are_left_out() {
    let good = format(&[entry(7, "/dev/sdc")], b"");
    for bad in
        ["", "x", "0123 /dev/sda", "+1234567890123456789012345678901 /dev/sda", &format!("{} relative", "0".repeat(32))]
    {
        let text = [bad.as_bytes(), b"\n", &good, bad.as_bytes()].concat();
        assert_eq!(parse(&text), [entry(7, "/dev/sdc")], "{bad:?}");
    }
}

#[test]
fn what_is_no_entry_stays_when_the_file_is_written_anew() {
    let old = [&format(&[entry(7, "/dev/sdc")], b""), &b"# the new shelf\n0707 /srv/half\n\n"[..]].concat();
    let new = format(&[entry(8, "/dev/sdd")], &old);
    let kept = format!("# the new shelf\n0707 /srv/half\n{} /dev/sdd\n", "08".repeat(16));
    assert_eq!(String::from_utf8(new.clone()).unwrap(), format!("{}{kept}", String::from_utf8_lossy(HEADER)));
    assert_eq!(format(&[entry(8, "/dev/sdd")], &new), new, "it does not grow");
}

#[test]
fn bytes_that_are_no_text_do_no_harm() {
    assert_eq!(parse(&[0xff, b' ', 0xfe, b'\n', 0, b' ']), []);
}

/// The entries after one was added, by what is at the paths now.
fn after_one(before: &[Entry], uuid: u8, path: &str, now: &[(&str, u8)]) -> Vec<Entry> {
    let at = |path: &Path| now.iter().find(|(known, _)| Path::new(known) == path).map(|(_, byte)| Uuid([*byte; 16]));
    let mut entries = before.to_vec();
    Change::Remember(moved(before, Uuid([uuid; 16]), Path::new(path), at)).make(&mut entries);
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    entries
}

#[test]
fn paths_that_were_exchanged_lose_no_entry() {
    let before = [entry(1, "/a"), entry(2, "/b"), entry(3, "/c")];
    let two = [("/a", 2), ("/b", 1), ("/c", 3)];
    assert_eq!(after_one(&before, 2, "/a", &two), [entry(2, "/a"), entry(1, "/b"), entry(3, "/c")]);
    assert_eq!(after_one(&before, 1, "/b", &two), [entry(2, "/a"), entry(1, "/b"), entry(3, "/c")]);
    let three = [("/a", 2), ("/b", 3), ("/c", 1)];
    for (uuid, path) in [(2, "/a"), (3, "/b"), (1, "/c")] {
        assert_eq!(after_one(&before, uuid, path, &three), [entry(2, "/a"), entry(3, "/b"), entry(1, "/c")]);
    }
    // What is nowhere that is known gives its path up; so does one whose copies are at several paths.
    assert_eq!(after_one(&before, 9, "/a", &[("/a", 9)]), [entry(9, "/a"), entry(2, "/b"), entry(3, "/c")]);
    let copies = [("/a", 2), ("/b", 1), ("/c", 1)];
    assert_eq!(after_one(&before, 2, "/a", &copies), [entry(2, "/a"), entry(1, "/b"), entry(3, "/c")]);
    assert_eq!(after_one(&before, 1, "/d", &[("/d", 1)]), [entry(2, "/b"), entry(3, "/c"), entry(1, "/d")]);
}
