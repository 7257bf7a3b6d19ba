//! Compares two transcripts by the lists: `compare LVM.txt ROWEN.txt LIST...`. What a run of the test left in its folder can be
//! looked at again so, after a change of a list.
use rowen_conformance::rules::Rule;
use rowen_conformance::{compare, rules, transcript};
use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [lvm, rowen, lists @ ..] = words.as_slice() else { return Err("compare LVM.txt ROWEN.txt LIST...".into()) };
    let (lvm, rowen) = (transcript::parse(&fs::read_to_string(lvm)?)?, transcript::parse(&fs::read_to_string(rowen)?)?);
    let mut parsed = Vec::new();
    for name in lists {
        parsed.push((name, rules::parse(&fs::read_to_string(name)?)?));
    }
    let rules: Vec<&Rule> = parsed.iter().flat_map(|(_, rules)| rules).collect();
    let verdict = compare::compare(&lvm, &rowen, &rules);
    for difference in &verdict.differences {
        println!("{difference}");
    }
    for (name, line) in parsed
        .iter()
        .flat_map(|(name, rules)| rules.iter().flat_map(move |rule| rule.unused().map(move |line| (name, line))))
    {
        println!("{name}, line {line}: unused");
    }
    println!("{} equal, {} explained, {} differ", verdict.equal, verdict.explained, verdict.differences.len());
    Ok(())
}
