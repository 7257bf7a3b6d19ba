use super::*;

fn entry(byte: u8, path: &str) -> Entry {
    Entry { uuid: Uuid([byte; 16]), path: PathBuf::from(path) }
}

#[test]
fn what_is_written_is_read_again() {
    let entries = vec![entry(1, "/dev/sdb"), entry(0xfe, "/srv/with blanks/pv a.img"), entry(0, "/p\u{e4}th")];
    assert_eq!(parse(&format(&entries)), entries);
}

#[test]
fn lines_that_make_no_sense_are_left_out() {
    let good = format(&[entry(7, "/dev/sdc")]);
    for bad in
        ["", "x", "0123 /dev/sda", "+1234567890123456789012345678901 /dev/sda", &format!("{} relative", "0".repeat(32))]
    {
        let text = [bad.as_bytes(), b"\n", &good, bad.as_bytes()].concat();
        assert_eq!(parse(&text), [entry(7, "/dev/sdc")], "{bad:?}");
    }
}

#[test]
fn bytes_that_are_no_text_do_no_harm() {
    assert_eq!(parse(&[0xff, b' ', 0xfe, b'\n', 0, b' ']), []);
}
