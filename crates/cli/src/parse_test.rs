use super::*;
use crate::table;

fn read(line: &str) -> Result<Args> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let command = table::find(&words[0]).unwrap();
    parse(command.name, command.options, &words[1..])
}

#[test]
fn letters_are_joined_and_options_follow_positionals() {
    let args = read("lvcreate vg -L40960K -aly -prw -kn -ncopy -Wy -y").unwrap();
    assert_eq!(args.positionals, ["vg"]);
    assert_eq!(args.size(Opt::Size).unwrap().bytes, 40_960 << 10);
    assert_eq!(args.activation(), Some(Activation::Yes));
    assert_eq!(args.read_only(), Some(false));
    assert_eq!(args.yes_no(Opt::SetSkip), Some(false));
    assert_eq!(args.text(Opt::Name), Some("copy"));
    assert!(args.assumes_yes());
    let args = read("pvcreate -ff -y /dev/x").unwrap();
    assert_eq!(args.count(Opt::Force), 2);
}

#[test]
fn long_options_take_values_both_ways_and_may_be_cut_short() {
    let args = read("lvcreate -s --size=20M --name lv1_s /dev/vg0/lv1").unwrap();
    assert_eq!((args.text(Opt::Name), args.text(Opt::Size)), (Some("lv1_s"), Some("20M")));
    assert!(read("lvs --noheading --unit=g").unwrap().has(Opt::NoHeadings));
    assert_eq!(read("lvs --separator=:::").unwrap().text(Opt::Separator), Some(":::"));
    assert_eq!(read("lvremove -- -f").unwrap().positionals, ["-f"]);
    let args = read("lvcreate --set-activation-skip=n --name a-b --add-tag=c-d v").unwrap();
    assert_eq!(
        (args.yes_no(Opt::SetSkip), args.text(Opt::Name)),
        (Some(false), Some("a-b")),
        "hyphens are no part of a name"
    );
    assert_eq!(args.text(Opt::AddTag), Some("c-d"));
    assert_eq!(read("lvremove --- -f").unwrap().positionals, ["-f"]);
    assert_eq!(read("lvcreate -n -dash vg").unwrap().text(Opt::Name), Some("-dash"));
    assert_eq!(read("lvchange -an v/l").unwrap().activation(), Some(Activation::No));
    assert_eq!(read("lvchange -aay v/l").unwrap().activation(), Some(Activation::Auto));
}

#[test]
fn a_letter_means_what_its_command_says() {
    assert!(read("lvextend -n -L 24M v/l").unwrap().has(Opt::NoFsck));
    assert!(read("lvs -a").unwrap().has(Opt::All));
    assert_eq!(read("vgcreate -s 16 v /dev/x").unwrap().size(Opt::ExtentSize).unwrap().bytes, 16 << 20);
    assert_eq!(read("lvcreate -c 256 -s v/l").unwrap().size(Opt::ChunkSize).unwrap().bytes, 256 << 10);
}

#[test]
fn every_command_reads_the_options_in_its_examples() {
    for command in table::COMMANDS {
        assert!(!command.examples.is_empty(), "{} has no example", command.name);
        for (example, _) in command.examples {
            if example.contains("$(") {
                continue;
            }
            let words: Vec<String> = example.split_whitespace().map(str::to_owned).collect();
            let words = if words[0] == "rowen" { &words[1..] } else { &words[..] };
            assert_eq!(words[0], command.name);
            assert!(parse(command.name, command.options, &words[1..]).is_ok(), "{example}");
        }
    }
}

#[test]
fn within_a_command_no_name_is_taken_twice() {
    for command in table::COMMANDS {
        let specs: Vec<_> = all(Grammar { tool: command.name, options: command.options }).collect();
        for (at, spec) in specs.iter().enumerate() {
            for other in &specs[at + 1..] {
                assert_ne!(spec.long, other.long, "{}", command.name);
                assert!(spec.short.is_none() || spec.short != other.short, "{} -{:?}", command.name, spec.short);
            }
        }
    }
}
