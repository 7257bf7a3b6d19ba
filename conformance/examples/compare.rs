//! Looks again at what a run of the comparison left, after a change of a list.
//!
//! `compare CONFORMANCE TRANSCRIPTS`, the folders of this crate and of what the run left, reports what no list explains.
//! `compare --gaps CONFORMANCE TRANSCRIPTS` writes the list of gaps again: what the list of wanted differences does not explain.

use rowen_conformance::rules::Rule;
use rowen_conformance::{compare, rules, transcript};
use std::error::Error;
use std::fs;
use std::path::Path;

const HEAD: &str = "# What is not as in LVM2 and is to be. `make conformance-gaps` writes this list; src/rules.rs tells its format.\n\n";

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let renew = words.first().is_some_and(|word| word == "--gaps");
    if renew {
        words.remove(0);
    }
    let [crate_folder, transcripts] = words.as_slice() else {
        return Err("compare [--gaps] CONFORMANCE TRANSCRIPTS".into());
    };
    let read = |name: &str| -> Result<_, Box<dyn Error>> {
        Ok(transcript::parse(&fs::read_to_string(Path::new(transcripts).join(name))?)?)
    };
    let (lvm, rowen) = (read("lvm.txt")?, read("rowen.txt")?);
    let list = |name: &str| -> Result<_, Box<dyn Error>> {
        Ok(rules::parse(&fs::read_to_string(Path::new(crate_folder).join(name))?)?)
    };
    let wanted = list("differences.txt")?;
    let gaps = if renew { Vec::new() } else { list("gaps.txt")? };
    let rules: Vec<&Rule> = wanted.iter().chain(&gaps).collect();
    let verdict = compare::compare(&lvm, &rowen, &rules);
    if renew {
        fs::write(Path::new(crate_folder).join("gaps.txt"), format!("{HEAD}{}", verdict.entries.concat()))?;
    } else {
        verdict.differences.iter().for_each(|difference| println!("{difference}"));
    }
    for (name, rules) in [("differences.txt", &wanted), ("gaps.txt", &gaps)] {
        for line in rules.iter().flat_map(Rule::unused) {
            println!("{name}, line {line}: nothing differs in this way");
        }
    }
    println!("{} equal, {} explained, {} differ", verdict.equal, verdict.explained, verdict.differences.len());
    Ok(())
}
