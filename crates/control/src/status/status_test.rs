use super::*;
use crate::protocol::{
    DiskWait, Filling, HeldVolume, MirrorReport, MoveReport, PvStatus, RepairReport, ScrubReport, StatusReport,
};
use rowen_engine::planted::must_be_found;
use rowen_engine::units::Uuid;

const KEEPER: KeeperSeen = KeeperSeen {
    process: Process { pid: 20, state: Some('S') },
    answer: Some(KeeperAnswer { started: 0, deaths: 0, failures: 0, held: 1 }),
};

fn pv(path: &str, n: u8) -> PvStatus {
    PvStatus {
        path: path.into(),
        uuid: Uuid([n; 16]),
        size_bytes: 1 << 30,
        failed_reads: 0,
        failed_writes: 0,
        failed_flushes: 0,
        silent_seconds: None,
        is_missing: false,
    }
}

fn report() -> StatusReport {
    StatusReport {
        open_seconds: 90,
        pvs: vec![pv("/dev/sdb", 1), pv("/dev/sdc", 2)],
        volumes: 3,
        active_volumes: 1,
        blocks: 1000,
        available_blocks: 588,
        ..StatusReport::default()
    }
}

/// A group whose server answers with a report that was changed so.
fn served(change: impl FnOnce(&mut StatusReport)) -> Seen {
    let mut report = report();
    change(&mut report);
    let server = ServerSeen::Answered { pid: 10, report: Box::new(report) };
    Seen { name: "vg".into(), server, keeper: Some(KEEPER), devices: 1, log: "/run/log".into(), ..Seen::default() }
}

fn without_server(server: ServerSeen, keeper: Option<KeeperSeen>, devices: u64) -> Seen {
    Seen { name: "vg".into(), server, keeper, devices, log: "/run/log".into(), ..Seen::default() }
}

fn verdict(seen: Seen) -> GroupStatus {
    let status = judge(Survey { groups: vec![seen], ..Survey::default() });
    let group = status.groups.into_iter().next().unwrap();
    // ST1
    assert_eq!(group.healthy, group.problems.is_empty(), "{group:?}");
    assert_eq!(status.healthy, group.healthy);
    assert!(group.problems.iter().all(|problem| !problem.what.is_empty() && !problem.next.is_empty()), "{group:?}");
    assert!(!group.sentence.is_empty());
    group
}

/// State, and what is wrong with what to do next.
fn judged(seen: Seen) -> (State, Vec<(String, String)>) {
    let group = verdict(seen);
    (group.state, group.problems.into_iter().map(|problem| (problem.what, problem.next)).collect())
}

fn found(pvs: &[(&str, bool)]) -> MembersSeen {
    let pv = |(n, (path, is_there)): (usize, &(&str, bool))| PvSeen {
        path: Some((*path).to_owned()),
        uuid: crate::uuids::lvm_text(Uuid([n as u8 + 1; 16])),
        size_bytes: 1 << 30,
        is_there: *is_there,
        is_out: false,
        is_older: false,
        is_cut: false,
        is_silent: false,
    };
    MembersSeen::Found(pvs.iter().enumerate().map(pv).collect())
}

#[test]
fn a_served_group_is_healthy() {
    let group = verdict(served(|_| {}));
    assert_eq!((group.state, group.healthy), (State::Serving, true));
    assert_eq!(group.sentence, "1 active volume of 3; 41.2% of its space is in use");
    assert_eq!((group.server_pid, group.keeper_pid, group.restarts), (Some(10), Some(20), Some(0)));
    assert_eq!(group.used_percent, Some(41.2));
    assert!(group.physical_volumes.iter().all(|pv| pv.state == PvWord::Ok));
}

#[test]
fn a_group_of_which_nothing_is_active_is_healthy() {
    let mut seen = without_server(ServerSeen::None, None, 0);
    seen.members = found(&[("/dev/sdb", true)]);
    let group = verdict(seen);
    assert_eq!((group.state, group.healthy), (State::NotRunning, true));
    assert_eq!(group.physical_volumes.len(), 1);
}

#[test]
fn a_stopped_group_says_why() {
    let (state, problems) = judged(served(|report| {
        report.stopped = Some("flush failed".into());
        report.pvs[1].failed_flushes = 1;
        report.held = vec![HeldVolume { name: "data".into(), seconds: 3 }];
    }));
    assert_eq!(state, State::Stopped, "it comes before everything else");
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert_eq!(problems[0].1, "once its disks are well: rowen clear vg");
    assert_eq!(problems[1].0, "/dev/sdc failed 1 flush since the group was opened");
    let group = verdict(served(|report| report.stopped = Some("flush failed".into())));
    assert_eq!(group.sentence, "flush failed");
}

#[test]
fn a_group_that_is_open_read_only_says_why() {
    let (state, problems) = judged(served(|report| report.read_only = Some("/dev/sdb is read-only".into())));
    assert_eq!(state, State::Serving);
    let expected = ("it is open read-only: /dev/sdb is read-only", "once it can be written: rowen clear vg");
    assert_eq!(problems, [(expected.0.into(), expected.1.into())]);
}

#[test]
fn writes_that_wait_are_named_with_their_time() {
    let held = |name: &str, seconds| HeldVolume { name: name.into(), seconds };
    let seen = served(|report| report.held = vec![held("data", 200), held("log", 7)]);
    let group = verdict(seen);
    assert_eq!(group.state, State::WaitingForSpace);
    assert_eq!(group.sentence, "writes wait for space: data (for 3 min), log (for 7 s)");
    assert_eq!(group.waiting_volumes[0], WaitingVolume { name: "data".into(), seconds: 200 });
    let (state, problems) = judged(served(|report| report.timed_out = vec![Some("pool".into()), None]));
    assert_eq!((state, problems.len()), (State::Serving, 2));
    assert!(problems[0].0.contains("thin pool pool") && problems[1].0.contains("the group"), "{problems:?}");
    let (state, problems) = judged(served(|report| {
        report.waits_for_room = Some("/pv/one".into());
        report.missing_room = vec!["no room behind /pv/one".into(), "no room behind /pv/two".into()];
    }));
    assert_eq!((state, problems.len()), (State::WaitingForSpace, 2), "{problems:?}");
    assert!(problems[0].0.contains("/pv/one") && problems[1].0.contains("/pv/two"), "{problems:?}");
}

#[test]
fn a_disk_is_waited_for_when_it_is_silent_for_long() {
    let silent = |seconds| judged(served(move |report| report.pvs[0].silent_seconds = Some(seconds)));
    assert_eq!(silent(14), (State::Serving, Vec::new()));
    let (state, problems) = silent(15);
    assert_eq!(state, State::WaitingForDisk);
    assert_eq!(problems[0].0, "/dev/sdb has not answered for 15 s");
}

#[test]
fn what_fills_up_or_is_lost_has_its_line() {
    let (state, problems) = judged(served(|report| {
        let filling = |volume: Option<&str>, is_pool| Filling { volume: volume.map(Into::into), is_pool, tenths: 841 };
        report.filling = vec![filling(None, false), filling(Some("pool"), true), filling(Some("snap"), false)];
        report.missing_room = vec!["WARNING: There is no room.".into()];
        report.invalid_snapshots = vec!["old".into()];
        report.nodes_lost = 1;
        report.copies_not_written = 2;
        report.bad_places = vec!["a bad place.".into()];
    }));
    assert_eq!(state, State::Serving);
    let next: Vec<&str> = problems.iter().map(|(_, next)| next.as_str()).collect();
    assert_eq!(problems.len(), 8, "{problems:?}");
    assert_eq!(problems[0].0, "the group is 84.1% full");
    assert_eq!(next[1], "rowen lvextend -L +SIZE vg/pool");
    assert_eq!(next[2], "rowen lvextend -L +SIZE vg/snap");
    assert_eq!(problems[3].0, "There is no room");
    assert_eq!(next[4], "rowen lvremove -f vg/old");
    assert!(next[6].contains("rowen repair vg"));
}

#[test]
fn work_in_the_background_is_no_problem() {
    let group = verdict(served(|report| {
        report.reclaim_left_blocks = 1 << 18;
        report.checks = 1;
        report.merging = vec!["snap".into()];
    }));
    assert!(group.healthy);
    assert_eq!(group.work.len(), 3);
    assert_eq!(group.work[0], "removal: 1.00 GiB are still to be searched");
}

#[test]
fn a_mirror_that_lacks_a_copy_is_a_problem_and_one_that_gets_it_is_work() {
    let mirrors = MirrorReport { extents: 8, free_extents: 2, bytes: 32 << 20, ..MirrorReport::default() };
    assert!(verdict(served(|report| report.mirrors = mirrors)).healthy);
    let group = verdict(served(|report| {
        report.mirrors = MirrorReport { unsynced_bytes: 9 << 20, stuck_bytes: 1 << 20, single_extents: 2, ..mirrors };
    }));
    assert_eq!(group.work[0], "mirrors: 8.00 MiB of 32.00 MiB are being copied from one disk to the other");
    let problems: Vec<&str> = group.problems.iter().map(|problem| problem.what.as_str()).collect();
    assert_eq!(
        problems,
        [
            "8.00 MiB of mirrored extents have one copy: the disk with the other one was removed",
            "1.00 MiB of mirrored volumes cannot be copied from one disk to the other"
        ]
    );
    assert!(group.problems[0].next.contains("rowen lvconvert --repair vg/LV"), "{:?}", group.problems);
}

/// What is copied after a server was killed is on both disks, if a write of it was acknowledged. What a disk missed is not.
#[test]
fn whoever_takes_the_only_current_copy_away_is_warned() {
    let mirrors = MirrorReport { extents: 8, bytes: 32 << 20, unsynced_bytes: 8 << 20, ..MirrorReport::default() };
    assert!(verdict(served(|report| report.mirrors = mirrors)).healthy);
    let group = verdict(served(|report| report.mirrors = MirrorReport { is_catching_up: true, ..mirrors }));
    assert_eq!(group.problems.len(), 1);
    assert!(group.problems[0].what.starts_with("8.00 MiB of mirrored volumes have one current copy"));
    assert!(group.problems[0].next.starts_with("take no disk away"));
    let outdated = MirrorReport { is_catching_up: true, unsynced_bytes: 0, outdated_bytes: 5 << 20, ..mirrors };
    let group = verdict(served(|report| report.mirrors = outdated));
    assert_eq!(group.problems.len(), 1);
    assert!(group.problems[0].what.starts_with("5.00 MiB of mirrored volumes cannot be read"));
    assert!(group.problems[0].next.contains("do not wipe or remove it"));
}

#[test]
fn copies_that_differ_are_a_problem_until_they_are_repaired() {
    let scrub = ScrubReport { done_blocks: 256, total_blocks: 512, different_blocks: 3, ..ScrubReport::default() };
    let of = |scrub: ScrubReport| verdict(served(|report| report.scrubs = vec![("m".into(), scrub)]));
    let running = of(ScrubReport { is_running: true, ..scrub });
    assert_eq!(running.work[0], "mirrors: the copies of vg/m are being compared: 1.00 MiB of 2.00 MiB");
    let differ = of(scrub);
    assert!(differ.problems[0].what.starts_with("the two copies of vg/m differ in 12.00 KiB"), "{:?}", differ.problems);
    assert!(differ.problems[0].next.contains("--syncaction repair vg/m"), "{:?}", differ.problems);
    assert!(of(ScrubReport { is_repair: true, ..scrub }).healthy);
}

#[test]
fn a_move_is_reported_while_it_lasts_and_when_it_ended_early() {
    let moving = |change: fn(&mut MoveReport)| {
        let group = verdict(served(|report| {
            let mut moving = MoveReport {
                is_running: true,
                path: "/dev/b".into(),
                moved: 1,
                total: 10,
                copied_bytes: 1 << 30,
                total_bytes: 10 << 30,
                seconds: 10,
                own_bytes: 1 << 30,
                ..MoveReport::default()
            };
            change(&mut moving);
            report.moving = Some(moving);
        }));
        assert!(group.healthy);
        group.work.concat()
    };
    let under_way = moving(|_| {});
    assert!(under_way.starts_with("pvmove: extents of /dev/b are being moved, 10.0% of 10.00 GiB, "), "{under_way}");
    assert!(under_way.contains("102.40 MiB in a second") && under_way.ends_with(" left"), "{under_way}");
    let waits = moving(|moving| moving.waits = Some("/dev/c is away".into()));
    assert_eq!(waits, "pvmove: extents of /dev/b wait to be moved: /dev/c is away");
    let failed = moving(|moving| (moving.is_running, moving.failed) = (false, Some("no room".into())));
    assert!(failed.contains("failed before the end: no room. ") && failed.contains("\"pvmove\" again"), "{failed}");
    assert!(moving(|moving| (moving.is_running, moving.is_stopped) = (false, true)).contains("was stopped"));
    let unread = moving(|moving| (moving.is_running, moving.unreadable) = (false, 3));
    assert!(unread.contains("3 extents of /dev/b cannot be read"), "{unread}");
}

#[test]
fn a_silent_server_is_named_with_what_it_does() {
    let silent = |state, keeper| {
        let process = Process { pid: 10, state };
        judged(without_server(ServerSeen::Silent(Some(process)), keeper, 1))
    };
    let (state, problems) = silent(Some('T'), Some(KEEPER));
    assert_eq!(state, State::NotAnswering);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].0.contains("process 10, which was stopped by a signal"), "{problems:?}");
    assert_eq!(problems[0].1, "continue it: kill -CONT 10");
    assert!(silent(Some('S'), Some(KEEPER)).1[0].1.contains("its keeper starts another"));
    assert!(silent(Some('D'), None).1[0].1.contains("then rowen vgs vg"));
    let unknown = judged(without_server(ServerSeen::Silent(None), None, 1));
    assert_eq!((unknown.0, unknown.1[0].1.as_str()), (State::NotAnswering, "see /run/log"));
}

#[test]
fn a_takeover_is_wrong_only_when_it_takes_long_or_fails() {
    let process = Process { pid: 11, state: Some('S') };
    let opening = |seconds, keeper| judged(without_server(ServerSeen::Opening { process, seconds }, keeper, 0));
    assert_eq!(opening(1, Some(KEEPER)), (State::TakingOver, Vec::new()));
    assert_eq!(opening(1, None), (State::Opening, Vec::new()));
    assert_eq!(opening(11, Some(KEEPER)).1.len(), 1);
    let failing = |failures| {
        let answer = KeeperAnswer { started: 9, deaths: 8, failures, held: 1 };
        KeeperSeen { answer: Some(answer), ..KEEPER }
    };
    let absent = |keeper| judged(without_server(ServerSeen::None, Some(keeper), 1));
    assert_eq!(absent(failing(2)), (State::TakingOver, Vec::new()));
    let (state, problems) = absent(failing(3));
    assert_eq!((state, problems.len()), (State::TakingOver, 1));
    assert!(problems[0].1.contains("/run/log"));
}

#[test]
fn devices_without_server_and_keeper_are_what_is_left_of_killed_ones() {
    let (state, problems) = judged(without_server(ServerSeen::None, None, 2));
    assert_eq!(state, State::Killed);
    assert!(problems[0].0.contains("2 volumes") && problems[0].1.contains("vgchange -ay vg"), "{problems:?}");
}

#[test]
fn a_missing_physical_volume_is_named() {
    for keeper in [None, Some(KEEPER)] {
        let mut seen = without_server(ServerSeen::None, keeper, 0);
        seen.members = found(&[("/dev/sdb", true), ("/dev/sdc", false)]);
        let group = verdict(seen);
        assert_eq!(group.state, State::Incomplete);
        assert!(group.sentence.starts_with("1 of 2 physical volumes are there"), "{}", group.sentence);
        assert!(group.problems[0].what.starts_with("/dev/sdc ("), "{:?}", group.problems);
        assert_eq!(group.physical_volumes[1].state, PvWord::Missing);
    }
    // A server that runs still has it.
    let mut seen = served(|_| {});
    seen.members = found(&[("/dev/sdb", true), ("/dev/sdc", false)]);
    let group = verdict(seen);
    assert_eq!((group.state, group.healthy), (State::Serving, false));
    assert!(group.problems[0].what.contains("could not be opened again"));
    assert_eq!(group.physical_volumes.iter().map(|pv| pv.state).collect::<Vec<_>>(), [PvWord::Ok, PvWord::Missing]);
}

/// A disk comes back: the labels say that it is in use, and the server does not use it yet.
#[test]
fn a_disk_is_back_when_the_server_uses_it() {
    let mut seen = served(|report| report.pvs[1].is_missing = true);
    seen.members = found(&[("/dev/sdb", true), ("/dev/sdc", true)]);
    let group = verdict(seen);
    assert_eq!((group.healthy, group.problems.len()), (false, 1));
    assert!(group.problems[0].what.contains("without physical volume") && group.problems[0].what.contains("attached"));
    assert_eq!(group.physical_volumes.iter().map(|pv| pv.state).collect::<Vec<_>>(), [PvWord::Ok, PvWord::Missing]);
}

#[test]
fn a_disk_that_is_out_has_the_path_where_it_was() {
    let mut seen = served(|report| (report.pvs[1].is_missing, report.pvs[1].path) = (true, "[unknown]".into()));
    seen.members = found(&[("/dev/sdb", true), ("/dev/sdc", false)]);
    let group = verdict(seen);
    assert_eq!(group.problems.len(), 1);
    assert!(group.problems[0].what.contains(" (last seen at /dev/sdc): what is only there"), "{:?}", group.problems);
    assert_eq!(group.physical_volumes[1].path.as_deref(), Some("/dev/sdc"));
    assert_eq!(group.physical_volumes[1].state, PvWord::Missing);
}

/// What is to be done about a missing disk: whether it was made smaller, and what the server does by itself.
#[test]
fn what_helps_a_group_without_a_disk_is_said() {
    let next = |is_cut: bool, repair: Option<RepairReport>| {
        let mut seen = served(|report| {
            report.pvs[1].is_missing = true;
            report.repair = repair;
        });
        seen.members = found(&[("/dev/sdb", true), ("/dev/sdc", false)]);
        let MembersSeen::Found(pvs) = &mut seen.members else { unreachable!() };
        pvs[1].is_cut = is_cut;
        judged(seen).1
    };
    assert!(next(false, None)[0].1.starts_with("attach it; if the group does not take it back"));
    let cut = next(true, None);
    assert!(cut[0].1.contains("not taken back: rowen vgreduce --removemissing vg"), "{cut:?}");
    let repair = RepairReport { seconds: 540, spares: vec!["/dev/sdd".into()], failed: None };
    let automatic = next(false, Some(repair.clone()));
    assert!(automatic[0].1.contains("attach it within 9 min, and take it back"), "{automatic:?}");
    assert!(automatic[0].1.contains("the spare /dev/sdd takes its copies"), "{automatic:?}");
    let cut = next(true, Some(repair.clone()));
    assert!(cut[0].1.starts_with("nothing: ") && cut[0].1.contains("In 9 min it leaves the group"), "{cut:?}");
    let others = next(false, Some(RepairReport { spares: Vec::new(), ..repair.clone() }));
    assert!(others[0].1.contains("other physical volumes take its copies"), "{others:?}");
    let failed = next(false, Some(RepairReport { failed: Some("there is no room".into()), ..repair }));
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(failed.iter().any(|(what, _)| what.contains("are not made anew by themselves: there is no room")));
    assert!(failed.iter().any(|(_, next)| next.starts_with("attach it; if")), "{failed:?}");
}

/// Its label cannot be read, and it is where it was.
#[test]
fn a_disk_that_does_not_answer_has_not_disappeared() {
    for is_served in [true, false] {
        let mut seen = if is_served { served(|_| {}) } else { without_server(ServerSeen::None, None, 0) };
        seen.members = found(&[("/dev/sdb", true), ("/dev/sdc", false)]);
        let silent_devices = vec!["/dev/sdc".to_owned(), "/dev/sdx".to_owned()];
        let status = judge(Survey { groups: vec![seen], silent_devices, ..Survey::default() });
        let group = &status.groups[0];
        assert_eq!((group.healthy, group.problems.len()), (false, 1), "{:?}", group.problems);
        let problem = &group.problems[0];
        assert!(problem.what.starts_with("/dev/sdc (") && problem.what.ends_with(") does not answer"), "{problem:?}");
        assert!(problem.next.starts_with("check the device"), "{problem:?}");
        assert_eq!(group.physical_volumes[1].state, PvWord::NotAnswering);
        assert_eq!(status.problems.len(), 1, "the one that no group is known to have");
        assert!(status.problems[0].what.starts_with("/dev/sdx does not answer"));
    }
    // Its server has waited for longer, and says so.
    let mut seen = served(|report| report.pvs[1].silent_seconds = Some(20));
    seen.members = found(&[("/dev/sdb", true), ("/dev/sdc", false)]);
    let status = judge(Survey { groups: vec![seen], silent_devices: vec!["/dev/sdc".into()], ..Survey::default() });
    let said: Vec<&str> = status.groups[0].problems.iter().map(|problem| problem.what.as_str()).collect();
    assert_eq!(said, ["/dev/sdc has not answered for 20 s"]);
}

#[test]
fn an_older_copy_is_named_and_keeps_a_group_closed() {
    for keeper in [None, Some(KEEPER)] {
        let mut seen = without_server(ServerSeen::None, keeper, 0);
        seen.members = found(&[("/dev/sdb", true), ("/dev/sdc", true), ("/dev/sdd", false)]);
        let MembersSeen::Found(pvs) = &mut seen.members else { panic!("they were found") };
        pvs[1].is_older = true;
        let group = verdict(seen);
        assert_eq!(group.state, State::CannotOpen);
        assert!(group.sentence.starts_with("/dev/sdc (") && group.sentence.contains("is an older copy"), "{group:?}");
        let (older, missing) = (&group.problems[0], &group.problems[1]);
        assert_eq!(older.what, group.sentence);
        assert!(
            older.next.contains("newest copy") && older.next.ends_with("--activationmode degraded vg"),
            "{older:?}"
        );
        assert!(missing.what.starts_with("/dev/sdd (") && missing.what.ends_with("is missing"), "{missing:?}");
        let words = group.physical_volumes.iter().map(|pv| pv.state).collect::<Vec<_>>();
        assert_eq!(words, [PvWord::Ok, PvWord::OlderCopy, PvWord::Missing]);
    }
}

#[test]
fn why_servers_fail_is_said() {
    let fails = |why: Option<&str>| {
        let answer = KeeperAnswer { failures: 29, ..KEEPER.answer.unwrap() };
        let keeper = KeeperSeen { answer: Some(answer), ..KEEPER };
        let mut seen = without_server(ServerSeen::None, Some(keeper), 1);
        seen.last_failure = why.map(str::to_owned);
        judged(seen).1
    };
    assert_eq!(fails(None)[0].0, "29 servers in a row failed");
    let problems = fails(Some("Volume group \"vg\" not found\nCannot process volume group vg."));
    let what =
        "29 servers in a row failed, the last one with: Volume group \"vg\" not found; Cannot process volume group vg";
    assert_eq!(problems[0].0, what);
    assert!(problems[0].1.contains("/run/log"), "{problems:?}");
    // What is over is not reported.
    let mut seen = served(|_| {});
    seen.last_failure = Some("it failed".into());
    assert_eq!(judged(seen), (State::Serving, Vec::new()));
}

#[test]
fn labels_that_contradict_each_other_keep_a_group_closed() {
    let mut seen = without_server(ServerSeen::None, None, 0);
    seen.members = MembersSeen::Contradictory("two devices have one label".into());
    assert_eq!(judged(seen).0, State::CannotOpen);
    let mut seen = served(|_| {});
    seen.members = MembersSeen::Contradictory("two devices have one label".into());
    let (state, problems) = judged(seen);
    assert_eq!((state, problems.len()), (State::Serving, 1));
    assert!(problems[0].1.contains("detach the copy; the group keeps using"), "{problems:?}");
    // Its server looks at what comes, and says it.
    let mut seen = served(|report| report.disk_wait = Some(wait("/dev/sdb and /dev/sdc are the same physical volume")));
    seen.members = MembersSeen::Contradictory("two devices have one label".into());
    assert_eq!(judged(seen).1.len(), 1);
}

#[test]
fn a_device_that_shrank_is_no_copy_to_be_wiped() {
    let mut seen = without_server(ServerSeen::None, None, 0);
    seen.members = MembersSeen::Shrunk("physical volume /dev/sdb shrank".into());
    let (state, problems) = judged(seen);
    assert_eq!(state, State::CannotOpen);
    assert!(problems[0].1.contains("--activationmode degraded vg"), "{problems:?}");
    assert!(!problems[0].1.contains("wipe"), "{problems:?}");
}

fn wait(what: &str) -> DiskWait {
    DiskWait { what: what.into(), next: "do this".into(), away: Vec::new() }
}

/// A group in use whose disks were pulled goes on when they are back: nothing is to be taken from the devices file.
#[test]
fn disks_that_were_pulled_are_to_be_attached() {
    let members = || found(&[("/dev/sdb", false), ("/dev/sdc", false)]);
    let mut seen = served(|_| {});
    seen.members = members();
    let (_, problems) = judged(seen);
    assert!(problems.len() == 2 && problems.iter().all(|(_, next)| next.starts_with("attach it: ")), "{problems:?}");
    // One that waits for its next server.
    let mut seen = without_server(ServerSeen::None, Some(KEEPER), 1);
    seen.members = members();
    let (_, problems) = judged(seen);
    assert!(problems.iter().all(|(_, next)| !next.contains("deldev")), "{problems:?}");
    // Of one that nobody uses it is not known.
    let mut seen = without_server(ServerSeen::None, None, 0);
    seen.members = members();
    assert!(judged(seen).1.iter().all(|(_, next)| next.contains("--deldev /dev/sd")));
}

/// What the server says of a disk is said once.
#[test]
fn a_disk_that_is_away_is_reported_once() {
    let mut seen = served(|report| {
        report.pvs[0].failed_reads = 3;
        let uuid = crate::uuids::lvm_text(report.pvs[0].uuid);
        let away = vec![report.pvs[0].uuid.0];
        report.disk_wait = Some(DiskWait { away, ..wait(&format!("physical volume /dev/sdb ({uuid}) is away")) });
    });
    seen.members = found(&[("/dev/sdb", false), ("/dev/sdc", true)]);
    let (_, problems) = judged(seen);
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn a_keeper_that_is_gone_or_stopped_is_wrong_while_volumes_are_active() {
    let keeper = |keeper, active| {
        let mut seen = served(|report| report.active_volumes = active);
        seen.keeper = keeper;
        judged(seen).1.len()
    };
    assert_eq!(keeper(None, 0), 0);
    assert_eq!(keeper(None, 1), 1);
    let stopped = Process { pid: 20, state: Some('T') };
    assert_eq!(keeper(Some(KeeperSeen { process: stopped, answer: None }), 1), 1);
    // A server of an older version does not report it.
    assert_eq!(keeper(Some(KeeperSeen { answer: None, ..KEEPER }), 1), 0);
}

#[test]
fn another_version_and_silent_devices_are_problems() {
    let refused = ServerSeen::Refused { pid: Some(10), why: "It speaks version 4.".into() };
    let (state, problems) = judged(without_server(refused, Some(KEEPER), 1));
    assert_eq!(state, State::OtherVersion);
    assert!(problems[0].1.starts_with("rowen upgrade vg"), "{problems:?}");
    let silent_devices = vec!["/dev/sdx".to_owned()];
    let status = judge(Survey { silent_devices, ..Survey::default() });
    assert!(!status.healthy && status.problems[0].what.contains("/dev/sdx"));
    let lost = LostPv { path: "/dev/sdy".into(), uuid: "id".into() };
    let status = judge(Survey { lost: vec![lost], ..Survey::default() });
    assert!(!status.healthy);
    assert_eq!(status.problems[0].what, "the physical volume /dev/sdy (id) is missing");
    assert!(status.problems[0].next.ends_with("--deldev /dev/sdy"));
}

#[test]
fn names_of_fields_stay() {
    let json = serde_json::to_value(judge(Survey { groups: vec![served(|_| {})], ..Survey::default() })).unwrap();
    let names = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(names(&json), "groups healthy problems");
    let group = &json["groups"][0];
    assert_eq!(
        names(group),
        "active_volumes deaths healthy keeper_pid name open_seconds physical_volumes problems restarts sentence server_pid state \
         used_percent volumes waiting_volumes work"
    );
    assert_eq!(
        names(&group["physical_volumes"][0]),
        "failed_flushes failed_reads failed_writes path size_bytes state uuid"
    );
    assert_eq!((&group["state"], &group["healthy"]), (&"serving".into(), &true.into()));
}

#[test]
fn all_states_are_all() {
    assert!(State::ALL.iter().enumerate().all(|(at, state)| *state as usize == at));
    assert_eq!(State::ALL.len(), State::OtherVersion as usize + 1);
}

#[test]
fn a_group_that_is_called_healthy_and_is_not_is_found() {
    must_be_found("unwell_is_healthy", a_stopped_group_says_why);
    must_be_found("catching_up_is_well", whoever_takes_the_only_current_copy_away_is_warned);
    must_be_found("silent_is_missing", a_disk_that_does_not_answer_has_not_disappeared);
    must_be_found("labels_are_enough", a_disk_is_back_when_the_server_uses_it);
}

#[test]
fn a_journal_on_one_physical_volume_is_reported_where_there_are_two() {
    let work = |pvs: usize, copies, written| {
        let group = verdict(served(|report| {
            report.pvs.truncate(pvs);
            (report.journal_copies, report.journal_copies_written) = (copies, written);
        }));
        assert!(group.healthy);
        group.work.join("\n")
    };
    assert_eq!(work(1, 1, 1), "");
    assert_eq!(work(2, 2, 2), "");
    assert!(work(2, 1, 1).contains("vgchange --vgmetadatacopies 2 vg "), "{}", work(2, 1, 1));
    assert!(work(2, 2, 1).ends_with("until the other one is back"), "{}", work(2, 2, 1));
}
