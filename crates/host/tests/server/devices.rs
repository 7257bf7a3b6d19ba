//! What may become a physical volume, and what is refused without a change.

use super::Test;
use super::world::{AGREED, Loop, MIB, Vg, dir, file, run};
use rowen_control::protocol::ErrorKind;
use rowen_control::uuids;
use rowen_host::devices::{self, Consent, Error};
use rowen_host::server;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("devices::a_file_becomes_a_pv_and_stops_being_one", a_file_becomes_a_pv_and_stops_being_one),
    ("devices::a_loop_device_becomes_a_pv", a_loop_device_becomes_a_pv),
    ("devices::what_is_no_device_is_refused", what_is_no_device_is_refused),
    ("devices::a_filesystem_is_not_overwritten_unasked", a_filesystem_is_not_overwritten_unasked),
    ("devices::a_device_in_use_is_refused", a_device_in_use_is_refused),
    ("devices::members_of_a_group_are_refused", members_of_a_group_are_refused),
    ("devices::a_refused_vgcreate_changes_none_of_its_devices", a_refused_vgcreate_changes_none_of_its_devices),
    ("devices::a_missing_member_is_named", a_missing_member_is_named),
    ("devices::a_copy_of_a_member_is_refused", a_copy_of_a_member_is_refused),
    ("devices::a_damaged_label_is_no_panic", a_damaged_label_is_no_panic),
    ("devices::a_scan_is_quick", a_scan_is_quick),
];

fn create(path: &Path, consent: Consent) -> Result<Vec<String>, Error> {
    devices::pvcreate(path, uuids::fresh(), consent)
}

fn is_listed(path: &Path) -> bool {
    devices::scan().unwrap().at(path).is_some()
}

/// The refusal, which must leave the device and the devices file as they were.
fn refusal<T>(path: &Path, attempt: impl FnOnce() -> Result<T, Error>) -> Error {
    let before = (fs::read(path).ok(), devices::file::read().unwrap());
    let error = attempt().err().expect("it is refused");
    assert!(before == (fs::read(path).ok(), devices::file::read().unwrap()), "{error}: something changed");
    let text = error.to_string();
    // A sentence, or LVM's form of one: the device first.
    let begins_well = text.starts_with(char::is_uppercase) || text.starts_with('/');
    assert!(begins_well && text.lines().count() <= 3, "{text}");
    error
}

fn a_file_becomes_a_pv_and_stops_being_one() {
    let path = file(64 * MIB);
    assert!(!is_listed(&path));
    assert_eq!(create(&path, Consent::default()).unwrap(), Vec::<String>::new());
    let scan = devices::scan().unwrap();
    let pv = scan.at(&path).unwrap();
    assert_eq!((&pv.path, pv.size), (&path, 64 * MIB));
    assert!(pv.label().unwrap().group.is_none());
    // Again, as LVM allows while it is in no group.
    create(&path, Consent::default()).unwrap();
    devices::pvremove(&path, Consent::default()).unwrap();
    assert!(!is_listed(&path));
    let error = refusal(&path, || devices::pvremove(&path, Consent::default()));
    assert_eq!(error.to_string(), format!("No PV found on device {}.", path.display()));
}

fn a_loop_device_becomes_a_pv() {
    for sector in ["512", "4096"] {
        let under = file(64 * MIB);
        let device = Loop::over(&under, &["--sector-size", sector]);
        create(&device.device, Consent::default()).unwrap();
        assert!(is_listed(&device.device));
        devices::pvremove(&device.device, Consent::default()).unwrap();
        assert!(!is_listed(&device.device));
    }
}

fn what_is_no_device_is_refused() {
    let fifo = dir().join("fifo");
    run("mkfifo", &[fifo.to_str().unwrap()]);
    let cases: [(PathBuf, ErrorKind); 5] = [
        (dir().join("nothing"), ErrorKind::NotFound),
        (dir().join("etc"), ErrorKind::Invalid),
        (fifo, ErrorKind::Invalid),
        ("/dev/null".into(), ErrorKind::Invalid),
        (file(devices::MIN_PV_BYTES - 4096), ErrorKind::Invalid),
    ];
    for (path, kind) in cases {
        let regular = fs::metadata(&path).is_ok_and(|meta| meta.is_file());
        let looked_at = if regular { path.clone() } else { dir().join("nothing") };
        let error = refusal(&looked_at, || create(&path, AGREED));
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    let under = file(64 * MIB);
    let read_only = Loop::over(&under, &["--read-only"]);
    assert_eq!(refusal(&under, || create(&read_only.device, AGREED)).kind(), ErrorKind::Denied);
    assert!(matches!(create(Path::new("/tmp/a\nb"), AGREED), Err(Error::BadPath(_))));
}

fn a_filesystem_is_not_overwritten_unasked() {
    for (program, name) in [("mkfs.ext4", "ext"), ("mkfs.xfs", "xfs"), ("mkswap", "swap")] {
        let path = file(400 * MIB);
        run(program, &["-q", path.to_str().unwrap()][usize::from(program == "mkswap")..]);
        let error = refusal(&path, || create(&path, Consent::default()));
        let Error::Confirm { question, .. } = &error else { panic!("{error}") };
        assert!(question.contains(&format!("{name} signature detected")), "{question}");
        let notes = create(&path, AGREED).unwrap();
        assert!(notes[0].starts_with(&format!("Wiping {name} signature")), "{notes:?}");
        let left = std::process::Command::new("blkid").arg("-p").arg(&path).output().unwrap().stdout;
        assert!(left.is_empty(), "{}", String::from_utf8_lossy(&left));
        fs::remove_file(path).unwrap();
    }
}

fn a_device_in_use_is_refused() {
    let path = file(64 * MIB);
    let attached = Loop::over(&path, &[]);
    let error = refusal(&path, || create(&path, AGREED));
    assert!(error.to_string().contains(attached.device.to_str().unwrap()), "{error}");

    let mounted = super::world::Mounted::ext4(&attached.device);
    let error = refusal(&path, || create(&attached.device, AGREED));
    assert!(error.kind() == ErrorKind::InUse && error.to_string().contains(mounted.point.to_str().unwrap()), "{error}");
    drop(mounted);
    drop(attached);

    let locked = File::open(&path).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(refusal(&path, || create(&path, AGREED)).kind(), ErrorKind::InUse);
}

fn members_of_a_group_are_refused() {
    let vg = Vg::make(&[64 * MIB]);
    let path = &vg.files[0];
    for force in [0, 1] {
        let error = refusal(path, || create(path, Consent { force, yes: true }));
        let expected = format!(
            "Can't initialize physical volume \"{}\" of volume group \"{}\" without -ff",
            path.display(),
            vg.name
        );
        assert_eq!(error.to_string().lines().next(), Some(expected.as_str()));
        assert_eq!(error.kind(), ErrorKind::Exists);
        let error = refusal(path, || devices::pvremove(path, Consent { force, yes: true }));
        assert!(
            error.to_string().contains(&format!("is used by VG {} so please use vgreduce first.", vg.name)),
            "{error}"
        );
    }
    let error = refusal(path, || create(path, Consent { force: 2, yes: false }));
    assert!(matches!(&error, Error::Confirm { question, .. } if question.contains("Really INITIALIZE")), "{error}");
    let other = [(path.clone(), uuids::fresh())];
    let error = refusal(path, || devices::vgcreate("other", uuids::fresh(), 1024, &other, Some(16), AGREED));
    assert!(error.to_string().contains("is already in volume group"), "{error}");
    // While a server has it open, even force must not reach it.
    vg.report();
    let error = refusal(path, || create(path, Consent { force: 2, yes: true }));
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
}

fn a_refused_vgcreate_changes_none_of_its_devices() {
    let (good, bad) = (file(64 * MIB), file(MIB * 2));
    let pvs = [(good.clone(), uuids::fresh()), (bad, uuids::fresh())];
    refusal(&good, || devices::vgcreate("vg", uuids::fresh(), 1024, &pvs, Some(16), AGREED));
    let twice = [(good.clone(), uuids::fresh()), (good.clone(), uuids::fresh())];
    let error = refusal(&good, || devices::vgcreate("vg", uuids::fresh(), 1024, &twice, Some(16), AGREED));
    assert!(matches!(error, Error::GivenTwice(_)), "{error}");
    let vg = Vg::make(&[64 * MIB]);
    let one = [(good.clone(), uuids::fresh())];
    let error = refusal(&good, || devices::vgcreate(&vg.name, uuids::fresh(), 1024, &one, Some(16), AGREED));
    assert_eq!(error.to_string(), format!("A volume group called {} already exists.", vg.name));
}

fn start_refusal(vg: &Vg) -> String {
    server::ensure_running(&vg.name).err().expect("the group cannot be opened").message
}

fn a_missing_member_is_named() {
    let vg = Vg::make(&[64 * MIB, 64 * MIB]);
    let aside = vg.files[1].with_extension("aside");
    fs::rename(&vg.files[1], &aside).unwrap();
    let text = start_refusal(&vg);
    assert!(text.contains(&format!("(last seen at {}) is missing", vg.files[1].display())), "{text}");
    assert!(!rowen_host::paths::group_dir(&vg.name).exists(), "the attempt left something behind");
    fs::rename(&aside, &vg.files[1]).unwrap();
    assert_eq!(vg.report().pvs.len(), 2);
}

fn a_copy_of_a_member_is_refused() {
    let vg = Vg::make(&[64 * MIB]);
    let copy = file(0);
    fs::copy(&vg.files[0], &copy).unwrap();
    let label = devices::scan().unwrap().at(&vg.files[0]).unwrap().label().unwrap().clone();
    let before = fs::read_to_string(devices::file::path()).unwrap();
    let both = format!("{before}{} {}\n", label.pv_uuid, copy.display());
    fs::write(devices::file::path(), both).unwrap();
    let text = start_refusal(&vg);
    assert!(text.contains(vg.files[0].to_str().unwrap()) && text.contains(copy.to_str().unwrap()), "{text}");
    devices::file::forget(&copy).unwrap();
    vg.report();
}

fn a_damaged_label_is_no_panic() {
    let path = file(64 * MIB);
    create(&path, Consent::default()).unwrap();
    let device = File::options().read(true).write(true).open(&path).unwrap();
    let mut sound = vec![0; 64 << 10];
    device.read_exact_at(&mut sound, 0).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..300 {
        let mut bytes = sound.clone();
        for _ in 0..=(state % 4) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % (64 << 10);
            bytes[at] ^= 1 << (state % 8);
        }
        device.write_all_at(&bytes, 0).unwrap();
        // Any answer will do that is not a panic and names the device where it is an error.
        let scan = devices::scan().unwrap();
        if let Some(pv) = scan.at(&path) {
            assert_eq!(pv.path, path);
        }
    }
    device.set_len(0).unwrap();
    device.set_len(64 * MIB).unwrap();
    assert!(!is_listed(&path));
}

fn a_scan_is_quick() {
    let paths: Vec<PathBuf> = (0..32).map(|_| file(64 * MIB)).collect();
    paths.iter().for_each(|path| drop(create(path, Consent::default()).unwrap()));
    let begun = Instant::now();
    let found = devices::scan().unwrap().pvs.len();
    let took = begun.elapsed();
    assert!(found >= 32, "{found} found");
    // Far less than a second; but the machine may be busy.
    assert!(took.as_secs() < 10, "a scan of {found} devices took {took:?}");
    paths.iter().for_each(|path| drop(devices::pvremove(path, Consent::default()).unwrap()));
}
