//! Shrinks a failing world: drops items as long as it still fails.

use super::plan::Plan;
use super::{Broken, Options, run};

/// The most runs of the world while it is shrunk.
const MAX_RUNS: usize = 300;

/// Numbers in the form of `--keep`: `0-3,7`.
pub fn list(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let shown = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(shown).collect::<Vec<_>>().join(",")
}

/// The numbers of such a list.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("`{text}` is no item's number"));
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if last.saturating_sub(first) > 100_000 {
            return Err(format!("`{part}` names too many items"));
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

/// The kind of a failure: its message without numbers. A smaller world must fail in the same way.
fn kind(what: &str) -> String {
    let words = what.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.filter(|word| !word.starts_with('#')).take(12).collect::<Vec<_>>().join(" ")
}

/// The same failure with as few items as a bounded search finds.
pub fn shrink(broken: &Broken, options: &Options) -> Broken {
    let all: Vec<usize> = Plan::new(broken.seed, &options.faults).items.iter().map(|item| item.number).collect();
    let mut kept = broken.keep.clone().unwrap_or(all);
    let mut best = broken.clone();
    let (wanted, mut runs) = (kind(&broken.what), 0);
    let mut size = kept.len().div_ceil(2);
    while size > 0 && runs < MAX_RUNS {
        let mut at = 0;
        let mut is_smaller = false;
        while at < kept.len() && runs < MAX_RUNS {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + size).min(kept.len()));
            runs += 1;
            let outcome = run(broken.seed, &Options { keep: Some(fewer.clone()), trace: false, ..options.clone() });
            match outcome {
                Err(smaller) if kind(&smaller.what) == wanted => {
                    (kept, best, is_smaller) = (fewer, smaller, true);
                }
                _ => at += size,
            }
        }
        if size == 1 && !is_smaller {
            break;
        }
        size = if size > 1 { size / 2 } else { 1 };
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        for numbers in [vec![], vec![3], vec![0, 1, 2, 5, 7, 8]] {
            assert_eq!(parse_list(&list(&numbers)).unwrap_or_default(), numbers);
        }
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert!(parse_list("3-x").is_err() && parse_list("0-99999999999").is_err());
    }
}
