//! The recorded commands and events of groups. No server is asked or started.

use super::groups::known_group;
use crate::backend::Follow;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use crate::report::time::TimeFormat;
use crate::session::Session;
use rowen_control::history::{Command, Event, Kept, Line, Read, merge, read};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The interval of looking for new events.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// The history of a group that has, or had, a name.
struct Group {
    name: String,
    uuid: String,
    commands: Read<Command>,
    events: Read<Event>,
    troubles: Vec<String>,
}

/// The name in the last line. Clocks do not matter.
fn last_name<L: Line>(read: &Read<L>) -> Option<&str> {
    read.lines.last().map(Line::group)
}

impl Group {
    /// None: no line can be read, and there is nothing to report.
    fn of(kept: Kept) -> Option<Group> {
        let Kept { uuid, commands, events, troubles } = kept;
        let (commands, events) = (read::<Command>(&commands), read::<Event>(&events));
        let name = match (commands.lines.last(), events.lines.last()) {
            (Some(command), Some(event)) if event.time < command.time => last_name(&commands),
            (_, Some(_)) => last_name(&events),
            _ => last_name(&commands),
        };
        let is_told = name.is_some() || commands.damaged + events.damaged > 0 || !troubles.is_empty();
        let name = name.unwrap_or_default().to_owned();
        is_told.then_some(Group { name, uuid, commands, events, troubles })
    }

    /// The time of its first line.
    fn first(&self) -> Option<u64> {
        let command = self.commands.lines.first().map(|line| line.time);
        command.into_iter().chain(self.events.lines.first().map(|line| line.time)).min()
    }

    /// Whether this is its last name in either file. After a rename one of the files may not have the new name yet.
    fn is_called(&self, name: &str) -> bool {
        self.name == name || last_name(&self.commands) == Some(name) || last_name(&self.events) == Some(name)
    }

    /// The heading: several groups may have had the same name.
    fn heading(&self) -> String {
        let name = if self.name.is_empty() { "a group without a name" } else { &self.name };
        format!("{name} ({}):", self.uuid)
    }
}

/// The named groups, or all. True: a named group is unknown.
fn groups(session: &mut Session<'_>, args: &Args) -> Result<(Vec<Group>, bool)> {
    let wanted = args.positionals.iter().map(|word| known_group(word)).collect::<Result<Vec<String>>>()?;
    let mut groups: Vec<Group> = session.backend.history().into_iter().filter_map(Group::of).collect();
    groups.sort_by(|one, other| (&one.name, one.first()).cmp(&(&other.name, other.first())));
    let mut is_missing = false;
    for name in &wanted {
        if !groups.iter().any(|group| group.is_called(name)) {
            session.console.complain(format!("There is no history of a volume group \"{name}\"."));
            is_missing = true;
        }
    }
    groups.retain(|group| wanted.is_empty() || wanted.iter().any(|name| group.is_called(name)));
    Ok((groups, is_missing))
}

/// Prints to standard error what could not be read.
fn warn_of_damage(session: &mut Session<'_>, group: &Group, damaged: u64) {
    group.troubles.iter().for_each(|trouble| session.console.complain(format!("WARNING: {trouble}.")));
    if damaged > 0 {
        let heading = group.heading();
        let lines = if damaged == 1 { "1 line is".to_owned() } else { format!("{damaged} lines are") };
        session.console.complain(format!("WARNING: {heading} {lines} damaged and left out."));
    }
}

fn end(is_missing: bool) -> Result {
    if is_missing { Err(Failure::Told) } else { Ok(()) }
}

fn print_json(session: &mut Session<'_>, value: &Value) -> Result {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::failed(e.to_string()))?;
    session.console.raw_out(&format!("{text}\n"));
    Ok(())
}

pub fn history(session: &mut Session<'_>, args: &Args) -> Result {
    let (groups, is_missing) = groups(session, args)?;
    let form = TimeFormat::default();
    let (is_json, is_long) = (args.has(Opt::Json), args.has(Opt::Long));
    let mut rows = Vec::new();
    let mut is_first = true;
    for mut group in groups {
        warn_of_damage(session, &group, group.commands.damaged);
        let entries = merge(std::mem::take(&mut group.commands.lines));
        if is_json {
            let damaged = group.commands.damaged;
            rows.push(json!({"name": group.name, "uuid": group.uuid, "damaged_lines": damaged, "commands": entries}));
            continue;
        }
        if entries.is_empty() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            session.console.say("");
        }
        session.console.say(format!("History of {}", group.heading()));
        for entry in &entries {
            let long = if is_long { format!(" [{}]", by(entry)) } else { String::new() };
            session.console.say(format!("{} {}{long}", form.show(entry.time), entry.command));
            if let Some(failure) = &entry.failure {
                session.console.say(format!("    failed: {failure}"));
            }
        }
    }
    if is_json {
        print_json(session, &json!({"groups": rows}))?;
    }
    end(is_missing)
}

/// Who did it, where, and how long it took.
fn by(entry: &Command) -> String {
    let host = if entry.host.is_empty() { String::new() } else { format!(" on {}", entry.host) };
    let who = match (entry.user.as_str(), entry.pid) {
        ("", _) => format!("the server{host}"),
        (user, 0) => format!("user {user}{host}"),
        (user, pid) => format!("user {user}{host}, process {pid}"),
    };
    format!("{who}, {}.{:03} s", entry.milliseconds / 1000, entry.milliseconds % 1000)
}

pub fn events(session: &mut Session<'_>, args: &Args) -> Result {
    // Follows before it reads the existing events, so that no event is missed.
    let next = args.has(Opt::Follow).then(|| session.backend.follow());
    let (groups, is_missing) = groups(session, args)?;
    let mut printer = Printer { form: TimeFormat::default(), is_json: args.has(Opt::Json), names: BTreeMap::new() };
    for group in &groups {
        warn_of_damage(session, group, group.events.damaged);
        printer.names.insert(group.uuid.clone(), group.name.clone());
    }
    if args.has(Opt::Json) && next.is_none() {
        let row = |group: &Group| json!({"name": group.name, "uuid": group.uuid, "damaged_lines": group.events.damaged, "events": group.events.lines});
        let rows: Vec<Value> = groups.iter().map(row).collect();
        print_json(session, &json!({"groups": rows}))?;
        return end(is_missing);
    }
    for group in &groups {
        group.events.lines.iter().for_each(|event| printer.print(session, &group.uuid, event));
    }
    let Some(next) = next else { return end(is_missing) };
    // If no group was named, new groups are followed, too.
    let wanted: Vec<String> =
        if args.positionals.is_empty() { Vec::new() } else { groups.into_iter().map(|group| group.uuid).collect() };
    if is_missing && wanted.is_empty() {
        return end(is_missing);
    }
    follow(session, &printer, &wanted, next);
    end(is_missing)
}

/// Prints events as they come, until the reader is gone.
fn follow(session: &mut Session<'_>, printer: &Printer, wanted: &[String], mut next: Follow) {
    session.console.flush();
    while let Some(news) = next().filter(|_| !session.console.is_unread()) {
        for (uuid, lines) in news {
            if wanted.is_empty() || wanted.contains(&uuid) {
                read::<Event>(&lines).lines.iter().for_each(|event| printer.print(session, &uuid, event));
            }
        }
        session.console.flush();
        session.backend.pause(POLL_EVERY);
    }
}

/// Prints events.
struct Printer {
    form: TimeFormat,
    is_json: bool,
    names: BTreeMap<String, String>,
}

impl Printer {
    fn print(&self, session: &mut Session<'_>, uuid: &str, event: &Event) {
        if self.is_json {
            let mut line = json!(event);
            if let Value::Object(fields) = &mut line {
                fields.insert("uuid".to_owned(), json!(uuid));
            }
            session.console.raw_out(&format!("{line}\n"));
            return;
        }
        let Event { time, group, event, message, .. } = event;
        session.console.say(format!("{} {group} {event}: {message}", self.form.show(*time)));
    }
}
