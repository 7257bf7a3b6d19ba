use super::*;
use rowen_engine::disk::{DiskOpKind, PvIndex};

fn tell(error: Error, name: &str) -> Failure {
    let devices = |index| (index == 1).then(|| PathBuf::from("/dev/sdb"));
    Context { group: "vg0", extent_blocks: 1024, devices: &devices }.failure(&error, name)
}

#[test]
fn lack_of_space_is_reported_in_whole_extents() {
    let failure = tell(Error::NoSpace { needed: 4096, free: 1023 }, "lv");
    assert_eq!(failure.message, "Insufficient free space: 4 extents needed, but only 0 available");
    assert_eq!(failure.kind, ErrorKind::NoSpace);
}

#[test]
fn lack_of_metadata_is_not_reported_as_lack_of_extents() {
    let failure = tell(Error::NoSpace { needed: 1, free: 4096 }, "lv");
    assert!(failure.message.starts_with("Insufficient free space for metadata in volume group \"vg0\""));
    assert!(failure.message.contains("vgextend"));
    assert_eq!(failure.kind, ErrorKind::NoSpace);
}

#[test]
fn names_are_written_as_by_lvm() {
    let taken = tell(Error::Exists("lv1".into()), "lv1");
    assert_eq!(taken.message, "Logical Volume \"lv1\" already exists in volume group \"vg0\"");
    let unknown = tell(Error::NotFound("nope".into()), "nope");
    assert_eq!(unknown.message, "Failed to find logical volume \"vg0/nope\"");
}

#[test]
fn a_failed_disk_is_named_by_its_path() {
    let error = DiskError { op: DiskOpKind::Write, pv: PvIndex(1), offset: 8192, errno: 5 };
    let failure = tell(error.into(), "");
    assert!(
        failure.message.starts_with("Physical volume /dev/sdb of volume group \"vg0\": write failed at byte 8192:")
    );
    assert_eq!(failure.kind, ErrorKind::Io);
}

#[test]
fn everything_is_a_whole_sentence() {
    for error in [
        Error::Invalid("size is not a multiple of a block".into()),
        Error::Busy("still being reclaimed".into()),
        Error::Poisoned("flush: error 5".into()),
        Error::Closed,
        Error::DiskLost(DiskError { op: DiskOpKind::Flush, pv: PvIndex(0), offset: 0, errno: 5 }),
        Error::OlderCopy(PvIndex(1)),
        Error::ReadOnly,
        Error::InvalidSnapshot,
        Error::Unrelated,
        Error::Moved,
        Error::Unsupported("feature 8".into()),
        Error::MissingPv("0123".into()),
        Error::Corrupt { what: "node", place: "block 7".into(), detail: "bad checksum".into() },
    ] {
        let message = tell(error, "lv").message;
        assert!(message.starts_with(char::is_uppercase) && message.ends_with('.'), "{message}");
    }
}

#[test]
fn the_engines_numbers_become_devices() {
    let devices = |index: usize| (index == 10).then(|| PathBuf::from("/dev/sdk"));
    let context = Context { group: "vg0", extent_blocks: 1, devices: &devices };
    let words = "write failed on physical volume 10 at byte 0; physical volume 1, physical volume x, physical volume ";
    let told = "write failed on physical volume /dev/sdk at byte 0; physical volume number 1, physical volume x, physical volume ";
    assert_eq!(context.with_devices(words), told);
}

#[test]
fn identifiers_and_groups_are_written_as_in_reports() {
    let uuid = Uuid([0x5e; 16]);
    let lvms = lvm_text(uuid);
    let older =
        tell(Error::MissingPv(format!("volume group vg0: physical volume {uuid} (1 of 3) is an older copy")), "");
    assert_eq!(older.message, format!("Volume group \"vg0\": Physical volume {lvms} (1 of 3) is an older copy."));
    let lost = tell(Error::MissingPv(format!("volume group vg0 cannot be opened without {uuid}, {uuid}: why")), "");
    assert_eq!(lost.message, format!("Volume group \"vg0\" cannot be opened without {lvms}, {lvms}: why."));
    // Other words stay, also those of another group.
    let other = tell(Error::MissingPv(format!("volume group vg01: x{uuid} beef {uuid}0 0x{uuid}")), "");
    assert_eq!(other.message, format!("Volume group \"vg0\": Volume group vg01: x{uuid} beef {uuid}0 0x{uuid}."));
}
