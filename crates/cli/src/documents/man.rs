//! Manual pages, in man(7)'s macros: one for each command, one for all of them, one for the fields.

use super::notes::{NOTES, Note};
use super::values::{options, words};
use crate::command::Command;
use crate::options::{COMMON, Kind, Spec};
use crate::report::fields::{self, Section};
use crate::report::listing;
use rowen_web::arguments as web;
use std::fmt::Write;

/// A page: the name of its file, and its text.
pub struct Page {
    pub file: String,
    pub text: String,
}

/// All pages.
pub fn pages(commands: &[Command]) -> Vec<Page> {
    let mut pages: Vec<Page> = commands.iter().map(|command| of_command(command, commands)).collect();
    pages.push(overview(commands));
    pages.push(of_fields());
    pages.push(of_web());
    pages.push(of_remote());
    pages
}

struct Roff(String);

impl Roff {
    fn new(name: &str, summary: &str) -> Roff {
        let version = env!("CARGO_PKG_VERSION");
        let title = name.to_ascii_uppercase();
        let mut page = Roff(format!(".TH {} 8 \"\" \"Rowen {version}\" \"System Administration\"\n", escaped(&title)));
        page.section("NAME");
        page.text(&format!("{name} - {summary}"));
        page
    }

    fn macro_line(&mut self, line: &str) {
        let _infallible = writeln!(self.0, "{line}");
    }

    fn section(&mut self, title: &str) {
        self.macro_line(&format!(".SH {title}"));
    }

    /// Plain text, with roff's special characters escaped.
    fn text(&mut self, text: &str) {
        self.macro_line(&escaped(text));
    }

    /// A term in bold, and its meaning.
    fn term(&mut self, term: &str, meaning: &str) {
        self.macro_line(".TP");
        self.macro_line(&format!("\\fB{}\\fR", escaped(term)));
        self.text(meaning);
    }

    fn paragraph(&mut self) {
        self.macro_line(".PP");
    }
}

fn escaped(text: &str) -> String {
    // Long lists of words may be broken between them.
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "\\(ga").replace('|', "|\\:");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// LVM's commands have pages of their own names, Rowen's are `rowen-NAME`.
fn page_name(command: &Command) -> String {
    if command.has_own_name() { command.name.to_owned() } else { format!("rowen-{}", command.name) }
}

fn option_term(spec: &Spec) -> String {
    let short = spec.short.map_or_else(String::new, |letter| format!("-{letter}, "));
    match spec.kind {
        Kind::Flag => format!("{short}--{}", spec.long),
        kind => format!("{short}--{} {}", spec.long, kind.shown()),
    }
}

fn of_command(command: &Command, commands: &[Command]) -> Page {
    let name = page_name(command);
    let mut page = Roff::new(&name, command.summary);
    page.section("SYNOPSIS");
    for form in command.forms {
        let called = command.called();
        page.macro_line(format!("\\fB{}\\fR {}", escaped(&called), escaped(form)).trim_end());
        page.macro_line(".br");
    }
    page.section("DESCRIPTION");
    page.text(&format!("{}.", command.summary));
    if command.is_lvm {
        page.paragraph();
        page.text("The command has LVM's name, sentences and exit codes. It may be called by its own name, where that is installed, or as:");
        page.macro_line(&format!("\\fBrowen {}\\fR", escaped(command.name)));
    }
    for Note { title, terms, .. } in NOTES.iter().filter(|note| note.command == command.name) {
        page.section(title);
        for (term, meaning) in *terms {
            page.term(term, meaning);
        }
    }
    page.section("OPTIONS");
    for spec in command.options.iter().map(|option| option.spec()) {
        page.term(&option_term(spec), spec.help);
    }
    page.macro_line(".SS Options of every command");
    for spec in COMMON.iter().map(|option| option.spec()) {
        page.term(&option_term(spec), spec.help);
    }
    page.section("EXAMPLES");
    for (example, what) in command.examples {
        page.term(example, what);
    }
    exit_status(&mut page);
    see_also(&mut page, command, commands);
    Page { file: format!("{name}.8"), text: page.0 }
}

fn exit_status(page: &mut Roff) {
    page.section("EXIT STATUS");
    for (code, meaning) in [
        ("0", "Done."),
        ("1", "Only rowen status: something is wrong."),
        ("2", "There is no such command."),
        ("3", "The command line makes no sense."),
        ("5", "The command failed: not found, exists, in use, no space, refused."),
    ] {
        page.term(code, meaning);
    }
}

fn see_also(page: &mut Roff, command: &Command, commands: &[Command]) {
    page.section("SEE ALSO");
    let takes_fields = options(command).any(|spec| spec.long == "options");
    let family = |other: &&Command| {
        other.is_lvm && command.is_lvm && other.name != command.name && other.name.get(..2) == command.name.get(..2)
    };
    let mut pages: Vec<String> = vec!["rowen".to_owned()];
    pages.extend(takes_fields.then(|| "rowen-fields".to_owned()));
    pages.extend(commands.iter().filter(family).map(page_name));
    let pages: Vec<String> = pages.iter().map(|page| format!("\\fB{}\\fR(8)", escaped(page))).collect();
    page.macro_line(&pages.join(", "));
}

fn overview(commands: &[Command]) -> Page {
    let mut page = Roff::new("rowen", "volume groups in user space, with LVM's commands");
    page.section("SYNOPSIS");
    page.macro_line("\\fBrowen\\fR COMMAND [OPTIONS] ...");
    page.section("DESCRIPTION");
    page.text(
        "Rowen is a logical volume manager that runs in user space. It has LVM's model and LVM's commands; its snapshots do not \
         make writes slower. One server for each volume group holds the group's devices and shows its volumes as block devices; \
         commands start it when it is needed.",
    );
    for (title, is_lvm) in [("LVM'S commands", true), ("ROWEN'S OWN commands", false)] {
        page.section(title);
        for command in commands.iter().filter(|command| command.is_lvm == is_lvm) {
            page.term(command.name, &format!("{}. See {}(8).", command.summary, page_name(command)));
        }
    }
    exit_status(&mut page);
    page.section("FILES");
    page.term("/dev/VG/LV, /dev/mapper/VG-LV", "The block device of an active volume.");
    page.section("SEE ALSO");
    page.macro_line("\\fBlvs\\fR(8), \\fBlvcreate\\fR(8), \\fBrowen\\-fields\\fR(8)");
    Page { file: "rowen.8".to_owned(), text: page.0 }
}

/// The manual page of `rowen-web`, which has no commands.
fn of_web() -> Page {
    let mut page = Roff::new("rowen-web", web::SUMMARY);
    page.section("SYNOPSIS");
    page.macro_line(&format!("\\fBrowen\\-web\\fR {}", escaped(web::FORM)));
    page.section("DESCRIPTION");
    page.text(web::ABOUT);
    page.section("OPTIONS");
    web::OPTIONS.iter().for_each(|(option, what)| page.term(option, what));
    page.section("EXAMPLES");
    web::EXAMPLES.iter().for_each(|(example, what)| page.term(example, what));
    page.section("EXIT STATUS");
    page.term("3", "The command line makes no sense.");
    page.term("5", "It cannot listen, or not answer any more.");
    page.section("FILES");
    page.term(web::FACTS, "What the page shows. The page's program reads no other file.");
    page.section("SEE ALSO");
    page.macro_line("\\fBrowen\\-facts\\fR(8), \\fBrowen\\-top\\fR(8), \\fBrowen\\-status\\fR(8)");
    Page { file: "rowen-web.8".to_owned(), text: page.0 }
}

/// The manual page of `rowen-remote`, which other commands run.
fn of_remote() -> Page {
    let mut page = Roff::new("rowen-remote", "points of volumes in directories and object stores");
    page.section("SYNOPSIS");
    page.macro_line("\\fBrowen\\-remote\\fR push|pull|store ...");
    page.section("DESCRIPTION");
    page.text(
        "The program that \"rowen push\", \"rowen pull\" and \"rowen store\" run, with the same words. It reads and writes stores, and runs \
         \"rowen send\" and \"rowen receive\" for all that concerns a volume group. It is the only program of Rowen with network code.",
    );
    page.section("ENVIRONMENT");
    page.term("ROWEN_PROGRAM", "The rowen that it runs, if not the one beside it or in the PATH.");
    page.term("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and others", "Who it is for an object store.");
    page.section("FILES");
    page.term("/etc/rowen/stores/NAME.conf", "Where the store of this name is.");
    page.term("/etc/rowen/stores/NAME.seen", "What was seen last of its log: an older copy of the store is refused.");
    page.section("SEE ALSO");
    page.macro_line("\\fBrowen\\-push\\fR(8), \\fBrowen\\-pull\\fR(8), \\fBrowen\\-store\\fR(8)");
    Page { file: "rowen-remote.8".to_owned(), text: page.0 }
}

fn of_fields() -> Page {
    let mut page = Roff::new("rowen-fields", "fields of reports, and criteria over them");
    page.section("DESCRIPTION");
    page.text(
        "These are the fields that -o shows, -O sorts by and -S chooses by. Case and underscores do not matter, and the prefix of \
         the report's kind may be left out. A list that begins with + adds to the usual fields, with - it takes away; # with \
         fields leaves out those that are blank in every row.",
    );
    for section in Section::ALL {
        page.section(&format!("\"{} FIELDS\"", section.title().to_ascii_uppercase()));
        if let Some(all) = section.all_name() {
            page.term(all, "All fields of this section.");
        }
        for field in fields::all().filter(|field| field.section == section) {
            page.term(
                &format!("{} [{}]", field.name, field.kind.shown()),
                &format!("{}: {}", field.heading, field.help),
            );
        }
    }
    page.section("CRITERIA");
    page.macro_line(".nf");
    for line in listing::grammar() {
        page.text(line.trim_end());
    }
    page.macro_line(".fi");
    page.section("UNITS");
    page.text(&format!(
        "Units are: {}. Lower case is powers of 1024, upper case powers of 1000.",
        words(Kind::Units).join(" ")
    ));
    page.section("SEE ALSO");
    page.macro_line("\\fBrowen\\fR(8), \\fBlvs\\fR(8), \\fBvgs\\fR(8), \\fBpvs\\fR(8)");
    Page { file: "rowen-fields.8".to_owned(), text: page.0 }
}
