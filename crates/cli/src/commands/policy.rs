//! `lvextend --use-policies` for a snapshot with a size or a thin pool. LVM's settings and the percentage in use decide
//! by how much it grows. The server applies the same settings by itself.

use crate::failure::{Failure, Result};
use crate::parse::Args;
use crate::roles::{Role, role};
use crate::session::Session;
use rowen_control::protocol::{GroupReport, VolumeReport, VolumeState};
use rowen_control::settings::{Autoextend, Settings};

/// By how many percent of its size the volume must grow. None: it has enough space, or does not grow automatically.
/// `is_again`: the messages about the settings have been printed.
pub fn growth(
    session: &mut Session<'_>,
    args: &Args,
    is_again: bool,
    report: &GroupReport,
    volume: &VolumeReport,
) -> Result<Option<u64>> {
    let settings = Settings::of(&args.config);
    let (policy, too_low, segments, used, size) = match (role(volume), volume.reserve_blocks) {
        (Role::Pool, _) => (
            settings.thin_pool_autoextend,
            "WARNING: Thin pool autoextend threshold {}% is set below minimum supported 50%.",
            "thin-pool",
            volume.referenced_blocks,
            volume.blocks,
        ),
        (Role::Snapshot, Some(reserve)) => (
            settings.snapshot_autoextend,
            "WARNING: Snapshot autoextend threshold {}% is set bellow minimal supported value 50%.",
            "linear",
            volume.snapshot_used_blocks,
            reserve,
        ),
        // It has no limit that it could reach.
        (Role::Snapshot, None) => return Ok(None),
        (Role::Thin | Role::Plain, _) => {
            return Err(Failure::failed(
                "Policy-based resize is supported only for snapshot, thin pool and vdo pool volumes.",
            ));
        }
    };
    if policy.threshold < Autoextend::MIN_THRESHOLD && !is_again {
        session.console.complain(too_low.replace("{}", &policy.threshold.to_string()));
    }
    if policy.threshold >= 100 || volume.state != VolumeState::Ok {
        return Ok(None);
    }
    if policy.percent == 0 {
        let full = format!("{}/{}", report.name, volume.name);
        return Err(Failure::failed(format!("Can't extend {full} with {segments} autoextend percent set to 0%.")));
    }
    Ok(policy.growth(used, size))
}

#[cfg(test)]
mod tests {
    use crate::fake::Fake;

    const HALF: &str = "--config activation/snapshot_autoextend_threshold=50";

    /// A snapshot of 16 MiB, of which 12 are in use, and a pool of 40 MiB, of which 30 are.
    fn world() -> Fake {
        let mut world = Fake::new();
        for line in [
            "vgcreate vg0 /dev/ubda /dev/ubdb",
            "lvcreate -L 40M -n a vg0",
            "lvcreate -s -L 16M -n s vg0/a",
            "lvcreate -L 40M -T vg0/pool",
            "lvcreate -V 40M -T vg0/pool -n t",
        ] {
            assert_eq!(world.run(line).code, 0, "{line}");
        }
        world.write("a", 3072);
        world.write("t", 7680);
        world.requests.clear();
        world
    }

    fn run(world: &mut Fake, line: &str, code: u8) -> (String, String) {
        let printed = world.run(line);
        assert_eq!(printed.code, code, "{line}: {printed:?}");
        (printed.out, printed.err)
    }

    #[test]
    fn a_snapshot_above_its_threshold_grows_below_it() {
        let mut world = world();
        let (out, err) = run(&mut world, &format!("lvextend --use-policies {HALF} vg0/s"), 0);
        assert!(out.contains("changed from 16.00 MiB (4 extents) to 24.00 MiB (6 extents)"), "{out}");
        assert_eq!(err, "");
        let (out, _) = run(&mut world, &format!("lvextend --use-policies {HALF} vg0/s"), 0);
        assert_eq!(out, "", "half of it is in use now");
    }

    #[test]
    fn a_pool_has_settings_of_its_own() {
        let mut world = world();
        world.settings = "activation/thin_pool_autoextend_threshold = 70".into();
        let (out, _) = run(&mut world, "lvextend --use-policies vg0/pool", 0);
        assert!(out.contains("from 40.00 MiB (10 extents) to 48.00 MiB (12 extents)"), "{out}");
    }

    #[test]
    fn nothing_grows_that_is_not_to() {
        let mut world = world();
        assert_eq!(run(&mut world, "lvextend --use-policies vg0/s", 0), (String::new(), String::new()));
        let (_, err) = run(&mut world, "lvextend --use-policies -L +40M vg0/s", 3);
        assert_eq!(err, "  Command does not accept option: --usepolicies.\n");
        let (_, err) = run(&mut world, "lvextend --use-policies vg0/a", 5);
        assert!(err.contains("supported only for snapshot"), "{err}");
        world.settings = "activation { snapshot_autoextend_threshold = 50 snapshot_autoextend_percent = 0 }".into();
        let (_, err) = run(&mut world, "lvextend --use-policies vg0/s", 5);
        assert!(err.contains("Can't extend vg0/s with linear autoextend percent set to 0%."), "{err}");
        world.settings = "activation/snapshot_autoextend_threshold = 10".into();
        let (_, err) = run(&mut world, "lvextend --use-policies -t vg0/s", 0);
        assert!(err.contains("threshold 10% is set bellow minimal supported value 50%"), "{err}");
        run(&mut world, "lvextend --use-policies", 3);
        assert_eq!(world.requests, []);
    }
}
