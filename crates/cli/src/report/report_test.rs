use super::*;
use crate::table;

fn shape(line: &str, kind: Kind) -> Result<Shape> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    Shape::from(&crate::parse::parse(table::find(&words[0]).unwrap(), &words[1..])?, kind)
}

fn names(line: &str) -> Vec<&'static str> {
    shape(line, Kind::Volume).unwrap().fields.iter().map(|field| field.name).collect()
}

#[test]
fn fields_are_found_with_and_without_their_prefix() {
    assert_eq!(names("lvs -o name,size,lv_attr,Attr,vg_name"), ["lv_name", "lv_size", "lv_attr", "lv_attr", "vg_name"]);
    assert!(names("lvs -o,").is_empty());
    assert_eq!(names("lvs -o lv_name -o+size"), ["lv_name", "lv_size"]);
    assert_eq!(names("lvs -o +lv_path").len(), 13);
    assert_eq!(names("lvs -v")[18], "lv_profile");
    assert!(names("lvs -o lv_all").len() > 30);
}

#[test]
fn an_unknown_field_lists_the_known_ones() {
    let Err(Failure::Failed(lines)) = shape("lvs -o nosuch", Kind::Volume) else { panic!("accepted") };
    assert_eq!(lines.last().unwrap(), "Unrecognised field: nosuch");
    assert!(lines.iter().any(|line| line.starts_with("  lv_uuid ")));
}

#[test]
fn no_field_has_the_name_of_another() {
    for (at, field) in fields::FIELDS.iter().enumerate() {
        assert!(fields::FIELDS[at + 1..].iter().all(|other| other.name != field.name), "{}", field.name);
    }
}
