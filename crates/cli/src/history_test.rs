//! Transcripts of `rowen history` and `rowen events`.

use crate::fake::Fake;
use crate::transcript_test::{play, with_group};
use rowen_control::history::{Event, What, write};

/// The identifier of the group that [`with_group`] makes.
fn uuid(world: &Fake) -> String {
    world.written.keys().next().unwrap().clone()
}

fn event(what: What, message: &str) -> String {
    let event = what.word().to_owned();
    let group = "vg0".to_owned();
    write(&Event { time: 1_795_198_414, group, event, message: message.to_owned(), host: "host".into(), pid: 9 })
}

#[test]
fn commands_are_listed_with_their_outcome() {
    let mut world = with_group();
    let uuid = uuid(&world);
    world.set_open("lv1", true);
    assert_eq!(world.run("lvremove -f vg0/lv1").code, 5);
    let why = {
        let lines = world.run("rowen history --json vg0").out;
        let json: serde_json::Value = serde_json::from_str(&lines).unwrap();
        assert_eq!(json["groups"][0]["uuid"], uuid.as_str());
        assert_eq!(json["groups"][0]["commands"][2]["request"], "remove");
        assert!(json["groups"][0]["commands"][1].get("failure").is_none());
        json["groups"][0]["commands"][2]["failure"].as_str().unwrap().to_owned()
    };
    assert!(why.contains("in use"), "{why}");
    // Looks, tests, and what a command refuses by itself are no changes.
    world.run("lvs");
    world.run("rowen check vg0");
    world.run("lvcreate -t -L 1M vg0");
    world.run("lvcreate -L 100T vg0");
    play(
        &mut world,
        &format!(
            "$ rowen history
            O|  History of vg0 ({uuid}):$
            O|  2026-11-20 18:13:34 +0000 vgcreate vg0 /dev/ubda$
            O|  2026-11-20 18:13:34 +0000 lvcreate -L 100M -n lv1 vg0$
            O|  2026-11-20 18:13:34 +0000 lvremove -f vg0/lv1$
            O|      failed: {why}$
            rc=0

            $ vgrename vg0 vg1
            O|  Volume group \"vg0\" successfully renamed to \"vg1\"$
            rc=0

            $ rowen history -l vg1
            O|  History of vg1 ({uuid}):$
            O|  2026-11-20 18:13:34 +0000 vgcreate vg0 /dev/ubda [user root on host, process 7, 0.005 s]$
            O|  2026-11-20 18:13:34 +0000 lvcreate -L 100M -n lv1 vg0 [user root on host, process 7, 0.005 s]$
            O|  2026-11-20 18:13:34 +0000 lvremove -f vg0/lv1 [user root on host, process 7, 0.005 s]$
            O|      failed: {why}$
            O|  2026-11-20 18:13:34 +0000 vgrename vg0 vg1 [user root on host, process 7, 0.005 s]$
            rc=0

            $ rowen history vg0
            E|  There is no history of a volume group \"vg0\".
            rc=5

            $ rowen history ../etc
            E|  Invalid volume group name ../etc.
            E|  Run `rowen history --help' for more information.
            rc=3"
        ),
    );
}

#[test]
fn requests_of_one_command_are_one_entry() {
    let mut world = with_group();
    world.run("vgchange --addtag t vg0");
    let before = world.run("rowen history vg0").out.lines().count();
    // Each of these asks for more than one change.
    assert_eq!(world.run("lvchange -an --addtag x vg0/lv1").code, 0);
    assert_eq!(world.run("rowen history vg0").out.lines().count(), before + 1);
    world.run("lvchange -an --addtag x vg0/lv1");
    assert_eq!(world.run("rowen history vg0").out.lines().count(), before + 2, "another run is another entry");
}

#[test]
fn damage_is_counted_and_the_rest_shown() {
    let mut world = with_group();
    let uuid = uuid(&world);
    let (commands, events) = world.written.get_mut(&uuid).unwrap();
    commands.insert_str(0, "{\"time\":\u{0}\n");
    events.push_str("half a l");
    play(
        &mut world,
        &format!(
            "$ rowen history vg0
            O|  History of vg0 ({uuid}):$
            O|  2026-11-20 18:13:34 +0000 vgcreate vg0 /dev/ubda$
            O|  2026-11-20 18:13:34 +0000 lvcreate -L 100M -n lv1 vg0$
            E|  WARNING: vg0 ({uuid}): 1 line is damaged and left out.
            rc=0

            $ rowen events vg0
            E|  WARNING: vg0 ({uuid}): 1 line is damaged and left out.
            rc=0"
        ),
    );
    // Of a group whose last lines are all damaged nobody knows the name.
    world.written.clear();
    world.written.insert(uuid.clone(), ("x\ny\n".into(), String::new()));
    play(
        &mut world,
        &format!(
            "$ rowen history
            E|  WARNING: a group without a name ({uuid}): 2 lines are damaged and left out.
            rc=0"
        ),
    );
}

#[test]
fn events_are_reported_and_followed() {
    let mut world = with_group();
    let uuid = uuid(&world);
    let events = event(What::Started, "volume group \"vg0\" is served") + &event(What::PvError, "a \u{1b}[31mdisk");
    world.written.get_mut(&uuid).unwrap().1 = events;
    world.coming = vec![
        vec![("another".into(), event(What::Ended, "no").into_bytes())],
        vec![(uuid.clone(), [event(What::Stopped, "it stopped").as_bytes(), b"damaged\n"].concat())],
    ];
    play(
        &mut world,
        "$ rowen events vg0
        O|  2026-11-20 18:13:34 +0000 vg0 server-started: volume group \"vg0\" is served$
        O|  2026-11-20 18:13:34 +0000 vg0 pv-error: a \\u{1b}[31mdisk$
        rc=0

        $ rowen events -f vg0
        O|  2026-11-20 18:13:34 +0000 vg0 server-started: volume group \"vg0\" is served$
        O|  2026-11-20 18:13:34 +0000 vg0 pv-error: a \\u{1b}[31mdisk$
        O|  2026-11-20 18:13:34 +0000 vg0 stopped: it stopped$
        rc=0

        $ rowen events -f vg7
        E|  There is no history of a volume group \"vg7\".
        rc=5",
    );
    world.coming = vec![vec![(uuid.clone(), event(What::Ended, "closed").into_bytes())]];
    let lines = world.run("rowen events -f --json").out;
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((last["event"].as_str(), last["uuid"].as_str()), (Some("server-ended"), Some(uuid.as_str())));
    assert_eq!(lines.lines().count(), 3);
}
