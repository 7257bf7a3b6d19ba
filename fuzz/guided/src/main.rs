//! `ROWEN_FUZZ_TARGET=name rowen-fuzz-guided DIR [OPTION...]` changes the examples of a target, guided by the code that they reach.
//! New inputs go to DIR/found, failures to DIR/failures. Options are libFuzzer's. With FILE... in place of DIR it runs these inputs
//! once. `rowen-fuzz-guided --list` names the targets.
//!
//! The name is in the environment because libFuzzer starts this program again for some of its work, with arguments of its own.
//!
//! `fuzz/guided/run` compiles this with coverage and starts it.

use libfuzzer_sys::fuzz_target;
use rowen_cli::hostile::command_lines;
use rowen_fuzz::driver::{Target, corpus, corpus_dir, words};
use rowen_fuzz::targets::TARGETS;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int};
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

const HELP: &str = "usage: ROWEN_FUZZ_TARGET=name rowen-fuzz-guided DIR [OPTION...] | FILE... | --list";

/// The address space of this process, in bytes. An input that claims more ends it, and is a failure.
const ADDRESS_SPACE: u64 = 2 << 30;
/// The memory that it may have touched, in MiB, and the seconds that one input may take.
const BOUNDS: [&str; 2] = ["-rss_limit_mb=512", "-timeout=10"];

/// The longest input that is tried: a block, or what the place takes, or a few times what it takes usually. Long ones are slow.
const LONGEST: usize = 4096;
const OTHERS_LONGEST: [(&str, usize); 8] = [
    ("stream", 16384),
    ("journal", 8192),
    ("outcome", 8192),
    ("keeper", 1100),
    ("helper", 2048),
    ("fuse", 1024),
    ("metadata", 16384),
    ("settings", 8192),
];

/// A target with faults, of each kind that a run must notice. It is not listed: `fuzz/guided/run planted` must fail.
const PLANTED: Target = Target { name: "planted", run: planted };

/// Those of rowen-fuzz, and command lines, which only the commands' own sources can run.
fn targets() -> impl Iterator<Item = &'static Target> {
    const COMMAND_LINES: Target = Target { name: "command-lines", run: command_lines };
    TARGETS.iter().chain([&COMMAND_LINES])
}

static TARGET: OnceLock<Target> = OnceLock::new();

// Also aborts after a panic, which writes the input to a file.
fuzz_target!(|bytes: &[u8]| {
    (TARGET.get().expect("main has chosen a target").run)(bytes);
});

unsafe extern "C" {
    fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> c_int;
}

#[cfg(feature = "linked")]
fn drive(argc: &mut c_int, argv: &mut *mut *mut c_char) -> c_int {
    type Run = unsafe extern "C" fn(*const u8, usize) -> c_int;
    unsafe extern "C" {
        fn LLVMFuzzerRunDriver(argc: *mut c_int, argv: *mut *mut *mut c_char, run: Run) -> c_int;
    }
    // SAFETY: both point to what lives until the call returns, and the array ends with a null pointer, as C has it.
    unsafe { LLVMFuzzerRunDriver(argc, argv, LLVMFuzzerTestOneInput) }
}

#[cfg(not(feature = "linked"))]
fn drive(_: &mut c_int, _: &mut *mut *mut c_char) -> c_int {
    let _ = LLVMFuzzerTestOneInput;
    eprintln!("libFuzzer is not part of this program: it was compiled without the feature `linked`");
    1
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "--list") {
        targets().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    }
    let name = std::env::var("ROWEN_FUZZ_TARGET").unwrap_or_default();
    let known = targets().chain([&PLANTED]).find(|target| target.name == name);
    let (Some(target), Some(place)) = (known, arguments.get(1)) else {
        let names: Vec<_> = targets().map(|target| target.name).collect();
        eprintln!("{HELP}\ntargets: {}", names.join(" "));
        return ExitCode::from(2);
    };
    TARGET.get_or_init(|| *target);
    let mut options: Vec<String> = [&arguments[0]].into_iter().cloned().chain(BOUNDS.map(Into::into)).collect();
    let mut rest = &arguments[1..];
    if Path::new(place).is_dir() {
        match guided(target, Path::new(place)) {
            Ok(more) => options.extend(more),
            Err(why) => {
                eprintln!("{place}: {why}");
                return ExitCode::FAILURE;
            }
        }
        rest = &rest[1..];
    }
    options.extend_from_slice(rest);
    if let Err(why) = setrlimit(Resource::As, Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) }) {
        eprintln!("the address space cannot be bounded: {why}");
        return ExitCode::FAILURE;
    }
    if let Err(why) = stack_for_signals() {
        eprintln!("no stack for signals: {why}");
        return ExitCode::FAILURE;
    }
    let options: Vec<CString> = options.into_iter().filter_map(|option| CString::new(option).ok()).collect();
    let mut pointers: Vec<*mut c_char> = options.iter().map(|option| option.as_ptr().cast_mut()).collect();
    let mut argc = c_int::try_from(pointers.len()).expect("a few options");
    pointers.push(std::ptr::null_mut());
    let status = drive(&mut argc, &mut pointers.as_mut_ptr());
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}

/// Calls without an end are reported on a stack of their own. Rust's is too small for libFuzzer, which writes the input there.
fn stack_for_signals() -> std::io::Result<()> {
    let stack = Box::leak(vec![0u8; 256 << 10].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    // SAFETY: the memory is never freed, and nothing else has a reference to it.
    match unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The options of libFuzzer for a run: bounds, words, and directories. It writes into the first directory only.
fn guided(target: &Target, place: &Path) -> std::io::Result<Vec<String>> {
    let longest = OTHERS_LONGEST.iter().find(|(name, _)| *name == target.name).map_or(LONGEST, |(_, longest)| *longest);
    let (found, failures) = (place.join("found"), place.join("failures"));
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&failures)?;
    let dictionary = place.join("words");
    let escaped = |word: &Vec<u8>| word.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let lines: String = vocabulary(target).iter().map(|word| format!("\"{}\"\n", escaped(word))).collect();
    std::fs::write(&dictionary, &lines)?;
    let examples = corpus_dir(target.name);
    let mut options = vec![format!("-max_len={longest}"), format!("-artifact_prefix={}/", failures.display())];
    // A dictionary without a word is an error.
    options.extend((!lines.is_empty()).then(|| format!("-dict={}", dictionary.display())));
    options.push(found.display().to_string());
    options.extend(examples.is_dir().then(|| examples.display().to_string()));
    Ok(options)
}

/// The words of the examples, and those that the target itself names, in backticks, when it refuses an example of which one word
/// was changed: "unknown variant `?`, expected one of `Hello`, `Stats`".
fn vocabulary(target: &Target) -> BTreeSet<Vec<u8>> {
    let examples = corpus(target.name);
    let mut all: BTreeSet<Vec<u8>> = words(&examples).into_iter().collect();
    // What panics here panics under libFuzzer as well, which keeps the input.
    std::panic::set_hook(Box::new(|_| ()));
    for example in &examples {
        for word in words(std::slice::from_ref(example)) {
            let Some(at) = example.windows(word.len()).position(|part| part == word) else { continue };
            let changed = [&example[..at], b"?", &example[at + word.len()..]].concat();
            let answer = catch_unwind(|| (target.run)(&changed)).unwrap_or_default();
            let named = answer.split('`').skip(1).step_by(2).filter(|word| (2..=24).contains(&word.len()));
            all.extend(named.map(|word| word.as_bytes().to_vec()));
        }
    }
    let _ = std::panic::take_hook();
    all
}

/// Behind a number that nobody hits blindly: a panic, an end that never comes, a claim on memory, and calls without an end.
fn planted(bytes: &[u8]) -> String {
    let Some((number, rest)) = bytes.split_first_chunk() else { return "nothing".into() };
    if u64::from_le_bytes(*number) != 0x7365_6c75_7220_6f6e {
        return "another number".into();
    }
    match rest.first() {
        Some(b'1') => panic!("a planted panic"),
        Some(b'2') => loop {
            std::hint::spin_loop();
        },
        Some(b'3') => format!("{} bytes claimed", Vec::<u8>::with_capacity(std::hint::black_box(4 << 30)).capacity()),
        Some(b'4') => planted(std::hint::black_box(bytes)) + "again",
        _ => "the number".into(),
    }
}
