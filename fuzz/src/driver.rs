//! Changes examples at random, calls a target with each, and keeps those that led to an answer not met before.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The longest input.
const LONGEST: usize = 64 << 10;
/// Inputs kept, at most.
const MOST_KEPT: usize = 4096;
/// Words of a text that are put elsewhere.
const WORD: std::ops::RangeInclusive<usize> = 2..=24;

/// A place where bytes come in.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// What it makes of the bytes, in words. Of a number in them only the first digit counts as something new.
    pub run: fn(&[u8]) -> String,
}

/// An input that a target panics on.
#[derive(Clone, Debug)]
pub struct Failure {
    pub input: Vec<u8>,
    pub what: String,
}

/// A generator that does the same on every run.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// 0 where `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() >> 16) as usize % bound.max(1)
    }
}

/// The directory of a target's examples.
pub fn corpus_dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// A target's examples, in the order of their names.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(corpus_dir(target)).into_iter().flatten().flatten();
    let paths: BTreeSet<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

/// One target, what it has met, and what is tried next.
pub struct Fuzzer {
    target: Target,
    rng: Rng,
    kept: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    met: HashSet<u64>,
    pub runs: u64,
}

impl Fuzzer {
    /// Runs the examples themselves.
    pub fn new(target: Target, examples: Vec<Vec<u8>>, seed: u64) -> Result<Fuzzer, Failure> {
        let words = words(&examples);
        let (rng, met) = (Rng::new(seed), HashSet::new());
        let mut fuzzer = Fuzzer { target, rng, kept: Vec::new(), words, met, runs: 0 };
        for example in examples.into_iter().chain([Vec::new()]) {
            fuzzer.run(&example)?;
            fuzzer.kept.push(example);
        }
        Ok(fuzzer)
    }

    /// Changes something that is known, and tries it.
    pub fn step(&mut self) -> Result<(), Failure> {
        let at = self.rng.below(self.kept.len());
        let mut input = self.kept[at].clone();
        for _ in 0..1 << self.rng.below(4) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        if self.run(&input)? && self.kept.len() < MOST_KEPT {
            self.kept.push(input);
        }
        Ok(())
    }

    /// Different answers so far.
    pub fn answers(&self) -> usize {
        self.met.len()
    }

    /// True: it led somewhere new.
    fn run(&mut self, input: &[u8]) -> Result<bool, Failure> {
        self.runs += 1;
        let run = self.target.run;
        let answer = catch_unwind(AssertUnwindSafe(|| run(input)));
        let answer = answer.map_err(|panic| Failure { input: input.to_vec(), what: panic_text(&*panic) })?;
        let mut hasher = DefaultHasher::new();
        // Of a number the first digit counts.
        let mut last = 0;
        for byte in answer.bytes().take(400) {
            if !(byte.is_ascii_digit() && u8::is_ascii_digit(&last)) {
                byte.hash(&mut hasher);
            }
            last = byte;
        }
        Ok(self.met.insert(hasher.finish()))
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let len = input.len();
        let at = self.rng.below(len);
        match self.rng.below(12) {
            0 if len > 0 => input[at] ^= 1 << self.rng.below(8),
            1 if len > 0 => input[at] = self.rng.bits() as u8,
            2 | 3 if len > 8 => self.change_number(input),
            4 if len > 0 => {
                let end = (at + 1 + self.rng.below(64)).min(len);
                input.drain(at..end);
            }
            5 => {
                let bytes: Vec<u8> = (0..=self.rng.below(16)).map(|_| self.rng.bits() as u8).collect();
                input.splice(at..at, bytes);
            }
            6 if len > 0 => {
                let end = (at + 1 + self.rng.below(128)).min(len);
                let again = input[at..end].repeat(1 + self.rng.below(3));
                input.splice(at..at, again);
            }
            7 => {
                // The head of one, the tail of another.
                let other = self.rng.below(self.kept.len());
                let other = &self.kept[other];
                let from = self.rng.below(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from.min(other.len())..]);
            }
            8 | 9 if !self.words.is_empty() => {
                let word = self.rng.below(self.words.len());
                let end = if self.rng.below(2) == 0 { at } else { (at + self.words[word].len()).min(len) };
                input.splice(at..end, self.words[word].iter().copied());
            }
            10 => self.change_digits(input),
            _ => input.truncate(at),
        }
    }

    /// A number of 2, 4 or 8 bytes gets a value that somebody may have forgotten to think of.
    fn change_number(&mut self, input: &mut [u8]) {
        let width = [2, 4, 8][self.rng.below(3)];
        let at = self.rng.below(input.len() - width + 1);
        let at = if self.rng.below(4) == 0 { at } else { at / width * width };
        let mut old = [0; 8];
        old[..width].copy_from_slice(&input[at..at + width]);
        let old = u64::from_le_bytes(old);
        let values = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 1 << 48, 1 << 47, 1 << 32, 1 << 31, 1 << 16, 4096, 512];
        let new = match self.rng.below(16) {
            12 => old.wrapping_add(1),
            13 => old.wrapping_sub(1),
            14 => old.wrapping_mul(2),
            15 => old ^ 1 << self.rng.below(8 * width),
            known => values[known],
        };
        input[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    }

    /// A number in a text becomes another.
    fn change_digits(&mut self, input: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..input.len())
            .filter(|at| input[*at].is_ascii_digit() && (*at == 0 || !input[at - 1].is_ascii_digit()))
            .collect();
        let Some(&start) = starts.get(self.rng.below(starts.len())) else { return };
        let end = (start..input.len()).find(|at| !input[*at].is_ascii_digit()).unwrap_or(input.len());
        let numbers =
            ["0", "1", "-1", "9223372036854775807", "9223372036854775808", "18446744073709551615", "1e9", "00"];
        let numbers =
            [&numbers[..], &["36028797018963968", "4294967296", "99999999999999999999", "2147483648"]].concat();
        let number = numbers[self.rng.below(numbers.len())];
        input.splice(start..end, number.bytes());
    }
}

/// The words in texts, to be put in other places.
pub fn words(examples: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut words = BTreeSet::new();
    for example in examples {
        let parts = example.split(|byte| !(byte.is_ascii_alphanumeric() || b"_-./@+%".contains(byte)));
        words.extend(parts.filter(|word| WORD.contains(&word.len())).map(<[u8]>::to_vec));
    }
    words.into_iter().take(2000).collect()
}

/// What a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "a panic".into())
}
