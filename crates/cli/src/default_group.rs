//! `LVM_VG_NAME`: the volume group to use if a command line names no group.

use crate::command::{Command, Operands};
use crate::options::Opt;
use crate::parse::Args;

/// Adds the group to the command line where it is missing.
pub fn apply(command: &Command, group: &str, args: &mut Args) {
    let complete = |word: &mut String| {
        if !word.is_empty() && !word.contains('/') && !word.starts_with('@') {
            *word = format!("{group}/{word}");
        }
    };
    match command.operands {
        // Its first operand is a group already.
        Operands::Volumes if args.has(Opt::WholeGroup) => {}
        Operands::Volumes => args.positionals.iter_mut().for_each(complete),
        Operands::VolumeFirst => args.positionals.iter_mut().take(1).for_each(complete),
        // A sparse volume has no origin.
        Operands::OriginOrGroup if args.has(Opt::Snapshot) && !args.has(Opt::VirtualSize) => {
            args.positionals.iter_mut().take(1).for_each(complete);
        }
        Operands::OriginOrGroup if args.positionals.is_empty() && !names_group(args) => {
            args.positionals.push(group.to_owned());
        }
        _ => {}
    }
}

/// Whether an option says which group is meant.
fn names_group(args: &Args) -> bool {
    [Opt::Name, Opt::ThinPool].into_iter().filter_map(|option| args.text(option)).any(|name| name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, table};

    fn read(line: &str) -> Vec<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let command = table::find(&words[0]).unwrap();
        let mut args = parse::parse(command.name, command.options, &words[1..]).unwrap();
        apply(command, "g", &mut args);
        args.positionals
    }

    #[test]
    fn the_group_that_was_left_out() {
        for (line, meant) in [
            ("lvs one two", &["g/one", "g/two"][..]),
            ("lvs h/one @tag", &["h/one", "@tag"]),
            ("lvs", &[]),
            ("lvextend -L1 one /dev/sdb", &["g/one", "/dev/sdb"]),
            ("lvextend -L1 one sdb", &["g/one", "sdb"]),
            ("lvcreate -n one -L1", &["g"]),
            ("lvcreate -n h/one -L1", &[]),
            ("lvcreate -n one -L1 h", &["h"]),
            ("lvcreate -s -n two one", &["g/one"]),
            ("lvcreate -s -V1G -L1 h", &["h"]),
            ("vgs one", &["one"]),
            ("vgremove h", &["h"]),
        ] {
            assert_eq!(read(line), meant, "{line}");
        }
    }
}
