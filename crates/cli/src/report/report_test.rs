use super::*;
use crate::fake::Fake;
use crate::table;

fn shape(line: &str, kind: Kind) -> Result<Shape> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let command = table::find(&words[0]).unwrap();
    Shape::from(&crate::parse::parse(command.name, command.options, &words[1..])?, kind)
}

fn names(line: &str) -> Vec<&'static str> {
    shape(line, Kind::Volume).unwrap().fields.iter().map(|field| field.name).collect()
}

#[test]
fn fields_are_found_with_and_without_their_prefix() {
    assert_eq!(names("lvs -o name,size,lv_attr,Attr,vg_name"), ["lv_name", "lv_size", "lv_attr", "lv_attr", "vg_name"]);
    assert_eq!(names("lvs -o LVName,vgname,SEG_START"), ["lv_name", "vg_name", "seg_start"]);
    assert!(names("lvs -o,").is_empty());
    let all = names("lvs -o lv_all");
    assert_eq!((all[0], all[1], all[all.len() - 1]), ("lv_uuid", "lv_name", "lv_attr"));
    assert_eq!(names("lvs -o all").len(), all.len() + 35);
    assert_eq!(names("lvs -v")[18], "lv_profile");
}

#[test]
fn lists_of_fields_add_take_away_and_replace() {
    assert_eq!(names("lvs -o lv_name -o+size"), ["lv_name", "lv_size"]);
    assert_eq!(names("lvs -o lv_name -o size"), ["lv_size"]);
    assert_eq!(names("lvs -o +lv_path").len(), 13);
    assert_eq!(names("lvs -o-lv_size,attr").len(), 10);
    assert_eq!(names("lvs -o-nosuch").len(), 12);
    assert_eq!(names("lvs -o+lv_uuid -o-lv_attr").len(), 12);
    assert_eq!(names("lvs --configreport vg -o vg_name --configreport lv -o lv_name"), ["lv_name"]);
}

#[test]
fn an_unknown_field_lists_the_known_ones() {
    let Err(Failure::Failed(lines)) = shape("lvs -o nosuch", Kind::Volume) else { panic!("accepted") };
    assert_eq!(lines.last().unwrap(), "Unrecognised field: nosuch");
    assert!(lines.iter().any(|line| line.starts_with("  lv_uuid ")));
    let Err(Failure::Failed(lines)) = shape("lvs -O nosuch", Kind::Volume) else { panic!("accepted") };
    assert_eq!(lines.last().unwrap(), "dm_report: Unrecognised field: nosuch");
    let Err(Failure::Failed(lines)) = shape("lvs -o name,+attr", Kind::Volume) else { panic!("accepted") };
    assert_eq!(lines.last().unwrap(), "Unrecognised field: +attr");
    let Err(Failure::Shown(lines)) = shape("lvs -o help", Kind::Volume) else { panic!("no help") };
    assert!(lines.len() > 230);
}

#[test]
fn no_field_has_the_name_of_another() {
    let mut names: Vec<String> = fields::all().map(|field| fields::plain(field.name)).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn volumes_and_physical_volumes_share_no_rows() {
    for line in ["lvs -o pv_name", "lvs -O pv_name", "lvs -S pv_name=x", "lvs -o pvseg_start"] {
        let Err(Failure::Failed(lines)) = shape(line, Kind::Volume) else { panic!("accepted: {line}") };
        assert_eq!(lines, ["Can't report LV and PV fields at the same time in report type \"lv\"."]);
    }
    assert!(shape("vgs -o lv_name,pv_name", Kind::Group).is_err());
    assert!(shape("vgs -o lv_name -S pv_name=x", Kind::Group).is_err());
    assert!(shape("pvs -o lv_name,pv_name", Kind::Pv).is_ok());
}

/// Where blocks are is asked for only when it is shown: it takes time in proportion to the volumes.
#[test]
fn what_needs_to_know_where_blocks_are() {
    for line in ["lvs", "lvs -o lv_name,segtype,stripes,thin_count,chunk_size", "lvs -S segtype=thin"] {
        assert!(!shape(line, Kind::Volume).unwrap().needs_places(), "{line}");
    }
    for line in ["lvs -o devices", "lvs -v", "lvs -o lv_name -S seg_size_pe>3"] {
        assert!(shape(line, Kind::Volume).unwrap().needs_places(), "{line}");
    }
    assert!(!shape("pvs", Kind::Pv).unwrap().needs_places());
    assert!(shape("pvs -o pv_name -S lv_name=x", Kind::Pv).unwrap().needs_places());
}

#[test]
fn settings_of_the_file_are_obeyed_and_what_is_nearer_comes_first() {
    let mut world = Fake::new();
    world.run("pvcreate /dev/ubda");
    world.run("vgcreate vg0 /dev/ubda");
    world.run("lvcreate -l1 -n a vg0");
    world.run("lvcreate -l1 -n b vg0");
    world.settings = "report { lvs_cols = \"lv_name,lv_size\" lvs_sort = \"-lv_name\" headings = 0 prefixes = yes \
                      aligned = 0 separator = \";\" }\nglobal { units = \"b\" suffix = 0 }"
        .into();
    let mut out = |line: &str| world.run(line).out;
    assert_eq!(out("lvs"), "  LVM2_LV_NAME='b';LVM2_LV_SIZE='4194304'\n  LVM2_LV_NAME='a';LVM2_LV_SIZE='4194304'\n");
    assert_eq!(out("lvs -O lv_name -o lv_name --units k"), "  LVM2_LV_NAME='a'\n  LVM2_LV_NAME='b'\n");
    assert_eq!(
        out("lvs --config report/lvs_cols=lv_name --units k -o+lv_size vg0/a"),
        "  LVM2_LV_NAME='a';LVM2_LV_SIZE='4096.00'\n"
    );
    assert_eq!(out("lvs --config report/prefixes=0 -O lv_name"), "  a;4194304\n  b;4194304\n");
}
