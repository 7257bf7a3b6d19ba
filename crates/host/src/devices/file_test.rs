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
