//! Containers: a `/dev` in which nobody makes nodes.

use crate::world::{MIB, World, tool};
use std::os::unix::fs::PermissionsExt;

/// Every loop device that the kernel has is new to it.
#[test]
fn a_dev_without_loop_devices_gets_those_that_are_needed() {
    let world = World::empty("container");
    world.device("pv", 64 * MIB);
    let script = world.dir.join("script");
    let lines = r#"
        set -eu
        mkdir dev
        mount -t tmpfs none dev
        cp -a /dev/null /dev/zero /dev/urandom /dev/fuse /dev/loop-control dev
        mkdir dev/mapper
        mount --bind dev /dev
        "$ROWEN" vgcreate "$VG" pv
        "$ROWEN" lvcreate -y -L 8M -n data "$VG"
        dd if=/dev/zero of="/dev/$VG/data" bs=1M count=8 conv=fsync,notrunc
        "$ROWEN" lvcreate -y -s -n before "$VG/data"
        dd if="/dev/$VG/before" of=/dev/null bs=1M iflag=direct
        "$ROWEN" vgremove -f "$VG"
        "$ROWEN" pvremove pv
    "#;
    std::fs::write(&script, lines).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let variables = [
        format!("ROWEN={}", env!("CARGO_BIN_EXE_rowen")),
        format!("VG={}", world.group),
        format!("ROWEN_RUN_DIR={}", world.dir.join("run").display()),
        format!("ROWEN_SYSTEM_DIR={}", world.dir.join("etc").display()),
    ];
    let mut words: Vec<&str> = vec!["--mount", "env", "-C", world.dir.to_str().unwrap()];
    words.extend(variables.iter().map(String::as_str));
    words.extend(["sh", script.to_str().unwrap()]);
    tool("unshare", &words);
}
