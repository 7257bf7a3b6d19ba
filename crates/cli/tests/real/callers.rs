//! Many who call at once, as programs do that start a command for each of their threads.

use crate::world::World;
use std::sync::{Arc, Barrier};

#[test]
fn sixty_four_callers_at_once_are_all_served() {
    const CALLERS: usize = 64;
    let world = Arc::new(World::new("callers", 256));
    world.ok("lvcreate -y -L 16M -n lv VG");
    let start = Arc::new(Barrier::new(CALLERS));
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let (world, start) = (world.clone(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                let lines = [
                    format!("lvcreate -y -s -an -n s{n} VG/lv"),
                    format!("lvs --noheadings -o lv_name,origin VG/s{n}"),
                    "vgs VG".to_owned(),
                    format!("lvremove -f VG/s{n}"),
                ];
                for line in lines {
                    let output = world.run(&line);
                    let err = String::from_utf8_lossy(&output.stderr);
                    assert!(output.status.success() && err.is_empty(), "{line}: {err}");
                }
            })
        })
        .collect();
    let failed = callers.into_iter().filter_map(|caller| caller.join().err()).count();
    assert_eq!(failed, 0, "callers that were not served");
    assert_eq!(world.ok("lvs --noheadings -o lv_name VG").trim(), "lv");
}
