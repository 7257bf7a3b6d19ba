use super::*;
use crate::encrypted::tests::Memory;

const STORE: [u8; 16] = [3; 16];

fn secret(text: &str) -> Secret {
    Secret(text.as_bytes().to_vec())
}

fn file(name: &str, bytes: &[u8], mode: u32) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("rowen-keys-{}-{name}", std::process::id()));
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(&path).unwrap();
    file.write_all(bytes).unwrap();
    path
}

#[test]
fn every_secret_of_a_store_opens_its_key() {
    let memory = Memory::default();
    let (one, other) = (secret("the first of two secrets"), secret("the second of two secrets"));
    let made = first(&memory, STORE, &one).unwrap();
    assert!(made.store == STORE && made.key != [0; 32]);
    assert!(unlocked(&memory, &other, None).unwrap().is_none());
    add(&memory, &made, &other).unwrap();
    for secret in [&one, &other] {
        let found = unlocked(&memory, secret, Some(STORE)).unwrap().unwrap();
        assert_eq!((found.store, found.key), (made.store, made.key));
        assert!(add(&memory, &made, secret).unwrap_err().to_string().contains("already"));
    }
    // A store that was begun and not made is gone on with, by whoever has its secret.
    assert_eq!(first(&memory, [4; 16], &one).unwrap().store, STORE);
    let error = first(&memory, [4; 16], &secret("somebody else's secret")).err().unwrap();
    assert!(error.to_string().contains("another key file"), "{error}");
}

#[test]
fn a_sealed_key_that_was_changed_opens_nothing() {
    let memory = Memory::default();
    let own = secret("the secret of the store");
    first(&memory, STORE, &own).unwrap();
    let whole = memory.0.lock().unwrap()[&name_of(1)].clone();
    assert_eq!(whole.len(), LEN);
    // The rounds are not tried: more take long. That too many are refused is below.
    for at in (0..LEN).filter(|at| !(8..12).contains(at)).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert!(open(&bytes, &own, None).is_none(), "byte {at}");
    }
    for len in [0, HEAD - 1, HEAD, LEN - 1] {
        assert!(open(&whole[..len], &own, None).is_none());
    }
    for rounds in [0, MOST_ITERATIONS + 1, u32::MAX] {
        let mut bytes = whole.clone();
        bytes[8..12].copy_from_slice(&rounds.to_le_bytes());
        assert!(open(&bytes, &own, None).is_none());
    }
    assert!(open(&whole, &own, None).is_some() && open(&whole, &own, Some([4; 16])).is_none());
}

/// The place is the operator's: a header that is hidden, or says that nothing is encrypted, opens nothing.
#[test]
fn a_store_that_was_encrypted_is_not_taken_for_another() {
    let secret = file("downgrade", b"the secret of the store\n", 0o600);
    let memory = Memory::default();
    let made = first(&memory, STORE, &Secret::read(&secret).unwrap()).unwrap();
    let known = Known { name: "s".into(), uuid: STORE, key_file: Some(secret.clone()), ..Known::default() };
    let opened = |known: &Known| opened(Box::new(memory.clone()), known).map(|(_, key)| key.map(|key| key.key));
    let refused = |known: &Known, words: &str| {
        let failure = opened(known).err().unwrap();
        assert!(failure.message.contains(words), "{}", failure.message);
    };
    refused(&known, "no store of rowen");
    let put = |header: Header| {
        memory.0.lock().unwrap().remove("rowen-store");
        rowen_transfer::store::create(&memory, header).unwrap();
    };
    put(Header { store: STORE, is_encrypted: false });
    refused(&known, "not encrypted, and was");
    put(Header { store: [4; 16], is_encrypted: true });
    refused(&known, "another store");
    put(Header { store: STORE, is_encrypted: true });
    assert_eq!(opened(&known).unwrap(), Some(made.key));
    refused(&Known { key_file: None, ..known }, "is encrypted, and was not");
    fs::remove_file(secret).unwrap();
}

#[test]
fn key_files_are_read_or_refused() {
    let good = file("good", b"  correct horse battery staple\n\n", 0o600);
    assert_eq!(Secret::read(&good).unwrap().0, b"correct horse battery staple");
    let (short, open) = (file("short", b"123456\n", 0o600), file("open", b"correct horse battery staple", 0o600));
    fs::set_permissions(&open, fs::Permissions::from_mode(0o640)).unwrap();
    let long = file("long", &[b'x'; 5000], 0o600);
    for (path, words) in [
        (short.as_path(), "has 6 bytes"),
        (&open, "chmod 600"),
        (&long, "more than 4096"),
        (Path::new("/dev/null"), "is no file"),
        (Path::new("/no/such/file"), "No such file"),
    ] {
        let failure = Secret::read(path).err().unwrap();
        assert!(failure.message.contains(words), "{}", failure.message);
    }
    let made = std::env::temp_dir().join(format!("rowen-keys-{}-made", std::process::id()));
    generate(&made).unwrap();
    assert_eq!(Secret::read(&made).unwrap().0.len(), 64);
    assert!(generate(&made).unwrap_err().message.contains("not overwritten"));
    for path in [good, short, open, long, made] {
        fs::remove_file(path).unwrap();
    }
}
