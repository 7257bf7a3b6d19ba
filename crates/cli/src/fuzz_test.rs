//! Command lines of any words whatever: never a panic, always one of the four exit codes, always a word on stderr when
//! something is refused.

use crate::hostile::{command_lines, start};
use crate::table;
use rowen_fuzz::driver::{Fuzzer, Target, corpus};
use std::time::{Duration, Instant};

/// A small generator: every run of the tests does the same.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

const PIECES: &[&str] = &[
    "-",
    "--",
    "-n",
    "-L",
    "-l",
    "-s",
    "-T",
    "-V",
    "-aay",
    "-an",
    "-o",
    "-o,",
    "-o+",
    "--units",
    "--type",
    "thin",
    "thin-pool",
    "snapshot",
    "--thinpool",
    "v",
    "v/l",
    "v/s",
    "v/pool",
    "/dev/v/l",
    "/dev/mapper/v-l",
    "@t",
    "/",
    "//",
    "",
    "=",
    "--=",
    "--name=",
    "-pr",
    "-k",
    "y",
    "100%FREE",
    "+100%ORIGIN",
    "-1",
    "0",
    "18446744073709551615",
    "9999999999999999999E",
    "1b",
    "4M",
    "+4M",
    "-4M",
    "10000%VG",
    "4611686018427387904b",
    "é",
    "\u{fffd}",
    "\n",
    "a b",
    "--merge",
    "-f",
    "-y",
    "-K",
    "--reportformat",
    "json",
    "--separator",
    "-O",
    "-lv_size",
    "-t",
    "--addtag",
    "t",
    "-c",
    "512k",
    "%",
    "x_tdata",
    "lv_all",
    "-vvv",
    "--suffix",
    "/dev/ubda",
    "/dev/ubdb",
    "--sharedstore",
    "-s512",
    "l",
    "new",
    "--nameprefixes",
    "-e",
    "--f",
    "--no",
];

#[test]
fn any_words_end_in_a_sentence_and_an_exit_code() {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let mut world = start();
    let mut codes = [0usize; 6];
    for round in 0..40_000 {
        if round % 50 == 0 {
            world = start();
        }
        let command = table::COMMANDS[rng.below(table::COMMANDS.len())].name;
        let words: Vec<String> = (0..rng.below(8)).map(|_| piece(&mut rng)).collect();
        let mut line = vec![command.to_owned()];
        line.extend(words);
        let printed = world.run_words("rowen", &line, (rng.below(2) == 0).then_some("y\n"));
        assert!([0, 2, 3, 5].contains(&printed.code), "{line:?}: {printed:?}");
        assert!(printed.code == 0 || !printed.err.is_empty(), "{line:?}: refused without a word");
        codes[usize::from(printed.code)] += 1;
    }
    assert!(codes[0] > 1000 && codes[3] > 1000 && codes[5] > 1000, "the words are too dull: {codes:?}");
}

fn piece(rng: &mut Rng) -> String {
    let one = PIECES[rng.below(PIECES.len())];
    match rng.below(12) {
        0 => format!("{one}{}", PIECES[rng.below(PIECES.len())]),
        1 => (0..rng.below(300)).map(|_| char::from(b'a' + rng.below(26) as u8)).collect(),
        _ => one.to_owned(),
    }
}

/// Changes of `fuzz/corpus/command-lines`. `ROWEN_FUZZ_SECONDS` goes on for so long, from `ROWEN_SEED`.
#[test]
fn changed_command_lines_end_in_a_sentence_and_an_exit_code() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let target = Target { name: "command-lines", run: command_lines };
    let examples = corpus(target.name);
    assert!(examples.len() > 4, "there are no examples");
    let mut fuzzer = Fuzzer::new(target, examples, number("ROWEN_SEED").unwrap_or(1)).unwrap();
    let (first, begun) = (fuzzer.answers(), Instant::now());
    let limit = number("ROWEN_FUZZ_SECONDS").map(Duration::from_secs);
    while limit.map_or(fuzzer.runs < 3000, |limit| begun.elapsed() < limit) {
        fuzzer
            .step()
            .unwrap_or_else(|failure| panic!("{:?}: {}", String::from_utf8_lossy(&failure.input), failure.what));
    }
    assert!(fuzzer.answers() > 2 * first, "the changes lead nowhere");
    println!("{} inputs, {} answers", fuzzer.runs, fuzzer.answers());
}
