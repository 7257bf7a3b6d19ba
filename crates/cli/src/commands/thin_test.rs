//! Send and receive by the names of other programs, and snapshots that go on under the name with which they began.

use crate::commands::transfer_world::{contents, ok, receive, send, token, two_groups, with_marks};
use crate::console::Console;
use crate::fake::Fake;

/// Runs a program that is called by this name.
fn called(world: &mut Fake, name: &str, words: &[&str], input: &[u8]) -> (Vec<u8>, String, u8) {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let (mut out, mut err, mut input) = (Vec::new(), Vec::new(), input);
    let code = crate::run(world, Console::new(&mut out, &mut err, Some(&mut input)), name, &words);
    (out, String::from_utf8(err).unwrap(), code)
}

#[test]
fn thin_send_and_thin_recv_are_send_and_receive() {
    let mut world = two_groups();
    let (full, err, code) = called(&mut world, "/usr/sbin/thin_send", &["/dev/vg0/mon"], b"");
    assert_eq!((err.as_str(), code), ("", 0));
    let (_, err, code) = called(&mut world, "thin_recv", &["/dev/vg1/db"], &full);
    assert_eq!((err.as_str(), code), ("", 0));
    let (part, err, code) = called(&mut world, "thin_send", &["vg0/mon", "vg0/tue"], b"");
    assert_eq!((err.as_str(), code), ("", 0));
    let (_, err, code) = called(&mut world, "rowen", &["thin_recv", "vg1/db"], &part);
    assert_eq!((err.as_str(), code), ("", 0));
    assert!(contents(&world, "vg1", "db") == contents(&world, "vg0", "tue"));
    for (name, words) in [
        ("thin_send", &["vg0/mon", "vg0/tue", "vg0/db"][..]),
        ("thin_send", &[]),
        ("thin_send", &["vg0/mon", "vg1/db"]),
        ("thin_send", &["-x", "vg0/mon"]),
        ("thin_recv", &[]),
        ("thin_recv", &["vg1/db", "vg1/x"]),
    ] {
        let (out, err, code) = called(&mut world, name, words, &part);
        assert!(out.is_empty() && !err.is_empty() && code != 0, "{name} {words:?}: {code} {err}");
    }
}

#[test]
fn what_goes_on_has_the_name_with_which_it_began() {
    let (mut world, stream) = with_marks();
    assert_eq!(receive(&mut world, "receive -n tuesday vg1/db", &stream[..stream.len() / 2]).code, 5);
    let word = token(&mut world, "vg1/db").unwrap();
    let rest = send(&mut world, &format!("send --resume {word}"));
    let done = receive(&mut world, "receive vg1/db", &rest);
    assert_eq!((done.err.as_str(), done.code), ("", 0));
    assert!(done.out.contains("its snapshot tuesday"), "{}", done.out);
    assert!(world.report("vg1").volume("wed").is_none());
    // The same for the whole stream again, and another name is another one.
    ok(&mut world, "lvremove -y vg1/tuesday vg1/db");
    let full = send(&mut world, "send vg0/wed");
    assert_eq!(receive(&mut world, "receive -n a vg1/db", &full[..full.len() / 2]).code, 5);
    let refused = receive(&mut world, "receive -n b vg1/db", &full);
    assert!(refused.code == 5 && refused.err.contains("for its snapshot a"), "{refused:?}");
    assert_eq!(receive(&mut world, "receive vg1/db", &full).code, 0);
    assert!(world.report("vg1").volume("a").is_some());
}
