//! The form of a report by options and by settings, of `--config` and of files. An option overrides a setting.

use super::field::Field;
use super::fields;
use super::kind::Kind;
use super::layout::{Form, Headings, Layout};
use super::time::TimeFormat;
use super::value::Style;
use crate::failure::{Failure, Result};
use crate::options::Opt;
use crate::parse::Args;
use rowen_control::config::Config;
use rowen_control::settings::default_text;
use rowen_control::units::Units;

/// How many columns a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Usual,
    Verbose,
    /// As a part of a full report.
    Full,
}

/// The settings that were given.
pub struct Settings<'a> {
    config: &'a Config,
}

fn wrong(setting: &str, value: &str) -> Failure {
    Failure::failed(format!(
        "Unrecognised configuration setting for {setting}: {value}\nUpdated config file invalid. Aborting."
    ))
}

impl<'a> Settings<'a> {
    pub fn from(args: &'a Args) -> Settings<'a> {
        Settings { config: &args.config }
    }

    fn is_on(&self, path: &str) -> Option<bool> {
        self.config.is_on(path)
    }

    fn text(&self, path: &str) -> Option<String> {
        self.config.text(path)
    }

    pub fn is_unbuffered(&self) -> bool {
        self.is_on("report/buffered") == Some(false)
    }

    /// The columns of a report without `-o`.
    pub fn columns(&self, kind: Kind, extent: Extent) -> String {
        let extent = match extent {
            Extent::Usual => "",
            Extent::Verbose => "_verbose",
            Extent::Full => "_full",
        };
        self.list(&format!("report/{}_cols{extent}", kind.setting()))
    }

    /// The fields by which it is sorted.
    pub fn order(&self, kind: Kind, extent: Extent) -> String {
        let extent = if extent == Extent::Full { "_full" } else { "" };
        self.list(&format!("report/{}_sort{extent}", kind.setting()))
    }

    fn list(&self, path: &str) -> String {
        self.text(path).unwrap_or_else(|| default_text(path).to_owned())
    }

    pub fn form(&self, args: &Args) -> Form {
        let setting = self.text("report/output_format");
        match args.text(Opt::ReportFormat).or(setting.as_deref()) {
            Some("json") => Form::Json,
            Some("json_std") => Form::JsonTyped,
            _ => Form::Text,
        }
    }

    pub fn units(&self, args: &Args) -> Result<Units> {
        match (args.has(Opt::UnitsShown), self.text("global/units")) {
            (false, Some(value)) => Units::parse(&value).ok_or_else(|| wrong("global/units", &value)),
            _ => Ok(args.units()),
        }
    }

    pub fn style(&self, args: &Args) -> Result<Style> {
        let time = match self.text("report/time_format") {
            Some(form) => TimeFormat::parse(&form).ok_or_else(|| {
                Failure::failed(format!(
                    "Invalid time format \"{form}\" supplied.\nUpdated config file invalid. Aborting."
                ))
            })?,
            None => TimeFormat::default(),
        };
        let between = self.text("report/list_item_separator").unwrap_or_else(|| ",".to_owned());
        Ok(Style {
            units: self.units(args)?,
            has_suffix: !args.has(Opt::NoSuffix) && self.is_on("global/suffix").unwrap_or(true),
            is_binary: args.has(Opt::Binary) || self.is_on("report/binary_values_as_numeric").unwrap_or(false),
            time,
            between_items: between,
        })
    }

    pub fn layout(&self, args: &Args, compact: Option<Vec<&'static Field>>, is_streamed: bool) -> Layout {
        let has_prefixes = args.has(Opt::NamePrefixes) || self.is_on("report/prefixes").unwrap_or(false);
        let is_quoted = !args.has(Opt::Unquoted) && self.is_on("report/quoted").unwrap_or(true);
        let is_aligned_by_option = args.has(Opt::Aligned);
        let is_unaligned = args.has(Opt::Separator) || args.has(Opt::NamePrefixes);
        let is_aligned = match self.is_on("report/aligned") {
            Some(is_on) => is_aligned_by_option || (is_on && !is_unaligned),
            None => is_aligned_by_option || !is_unaligned,
        };
        let setting = self.text("report/headings");
        let headings = match args.text(Opt::Headings).or(setting.as_deref()) {
            _ if args.has(Opt::NoHeadings) => Headings::None,
            Some("0" | "none") => Headings::None,
            _ if self.is_on("report/headings") == Some(false) && !args.has(Opt::Headings) => Headings::None,
            Some("2" | "full") => Headings::Names,
            _ => Headings::Short,
        };
        let setting = self.text("report/separator");
        let separator = args.text(Opt::Separator).or(setting.as_deref());
        Layout {
            form: self.form(args),
            headings,
            separator: separator.unwrap_or(" ").to_owned(),
            is_aligned,
            is_turned: args.has(Opt::Rows) || self.is_on("report/columns_as_rows").unwrap_or(false),
            prefixes: has_prefixes.then_some(is_quoted),
            compact: self.compact(compact),
            is_streamed,
        }
    }

    /// The fields that are left out if no row has a value: all, those that the command line names, or else those of the
    /// setting.
    fn compact(&self, named: Option<Vec<&'static Field>>) -> Option<Vec<&'static Field>> {
        if self.is_on("report/compact_output") == Some(true) {
            return Some(Vec::new());
        }
        if named.is_some() {
            return named;
        }
        let names = self.text("report/compact_output_cols")?;
        let only: Vec<&Field> = names.split(',').filter_map(|name| fields::find("lv_", name)).collect();
        (!only.is_empty()).then_some(only)
    }
}
