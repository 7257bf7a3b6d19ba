//! The list of fields, for `-o help` and for messages about unknown fields, and with types for `-S help`.

use super::field::Section;
use super::fields;

fn list(is_for_select: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for section in Section::ALL {
        let title = format!("{} Fields", section.title());
        lines.push(title.clone());
        lines.push("-".repeat(title.len()));
        let mut line = |name: &str, help: &str, kind: &str| {
            let kind = if is_for_select { format!(" [{kind}]") } else { String::new() };
            lines.push(format!("  {name:<27} - {help}{kind}"));
        };
        if let Some(all) = section.all_name().filter(|_| !is_for_select) {
            line(all, "All fields of this section.", "");
        }
        for field in fields::all().filter(|field| field.section == section) {
            line(field.name, field.help, field.kind.shown());
        }
        if section == Section::Special {
            line("help", "Show this list.", "unselectable number");
            line("?", "Show this list.", "unselectable number");
        }
        lines.push(" ".to_owned());
    }
    lines
}

/// All fields by section, a line each.
pub fn fields() -> Vec<String> {
    list(false)
}

/// All fields with their types.
pub fn typed_fields() -> Vec<String> {
    list(true)
}

/// The grammar of criteria: operands, words for values, operators.
pub fn grammar() -> Vec<String> {
    const LINES: &[&str] = &[
        "Selection operands",
        "------------------",
        "  field               - A field's name.",
        "  number              - A whole number that is not negative.",
        "  size                - A number with or without a unit's letter; without one it counts mebibytes.",
        "  percent             - A number up to 100, with or without %.",
        "  string              - Characters, in ' or \" where they are more than a word.",
        "  string list         - Strings in [ ] (the whole list) or { } (a part of it), with && or , between them where",
        "                        all must be there, with || or # where one is enough.",
        "  regular expression  - Characters, in ' or \" where they are more than a word.",
        "  time                - YYYY-MM-DD HH:MM:SS +ZZ:ZZ or the beginning of it, @SECONDS, today, yesterday, a day of",
        "                        the week, or as in \"2 weeks ago\".",
        " ",
        "Reserved values",
        "---------------",
        "  -1, unknown, undefined, undef   - What has no value. [number]",
        "  yes, no, or the word shown      - Whether a flag is set. [number]",
        " ",
        "Selection operators",
        "-------------------",
        "  Comparison operators:",
        "        =~  - Matches the regular expression. [regex]",
        "        !~  - Does not match the regular expression. [regex]",
        "         =  - Equal. [number, size, percent, string, string list, time]",
        "        !=  - Not equal. [number, size, percent, string, string list, time]",
        "        >=  - At least. [number, size, percent, time]",
        "         >  - More. [number, size, percent, time]",
        "        <=  - At most. [number, size, percent, time]",
        "         <  - Less. [number, size, percent, time]",
        "     since  - The same as >=. [time]",
        "     after  - The same as >. [time]",
        "     until  - The same as <=. [time]",
        "    before  - The same as <. [time]",
        " ",
        "  Logical and grouping operators:",
        "      && ,  - Both",
        "      || #  - Either, or both",
        "         !  - Not, before a parenthesis",
        "       ( )  - Parentheses",
        " ",
    ];
    LINES.iter().map(|line| (*line).to_owned()).collect()
}
