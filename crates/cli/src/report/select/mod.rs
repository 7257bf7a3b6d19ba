//! `-S`: criteria over fields, in LVM's grammar. `Criteria::parse` parses them, `is_met` evaluates them for a row. A
//! comparison with a missing value is false, except `= unknown`.

pub mod moment;
mod parse;
#[cfg(test)]
mod select_test;
mod tree;

use crate::backend::LabelledPv;
use crate::failure::Result;
use crate::options::Opt;
use crate::parse::Args;
use crate::report::field::{About, Field};
use crate::report::index::Indexed;
use crate::report::kind::Kind;
use crate::report::row::Row;
use crate::report::rows;
use rowen_control::protocol::GroupReport;
use tree::Node;

/// What rows must meet.
#[derive(Debug)]
pub struct Criteria {
    root: Node,
}

impl Criteria {
    /// Parses criteria. `None`: there are none.
    pub fn parse(text: &str, prefix: &'static str) -> Result<Option<Criteria>> {
        Ok(parse::parse(text, prefix)?.map(|root| Criteria { root }))
    }

    /// The criteria of `-S` in a command that changes something.
    pub fn of_command(args: &Args, kind: Kind) -> Result<Option<Criteria>> {
        args.text(Opt::Select).map_or(Ok(None), |text| Criteria::parse(text, kind.prefix()))
    }

    /// Every field that the criteria use.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> {
        let mut fields = Vec::new();
        self.root.add_fields(&mut fields);
        fields.into_iter()
    }

    /// Whether the criteria depend on open devices.
    pub fn shows_use(&self) -> bool {
        self.fields().any(Field::shows_use)
    }

    pub fn is_met(&self, row: &Row<'_>) -> bool {
        self.root.is_met(row)
    }

    /// Whether the group, or anything in it, meets the criteria.
    pub fn takes_group(&self, report: &GroupReport) -> bool {
        let group = Indexed::new(report);
        self.any(rows::of_group(&group))
    }

    /// The named volumes that meet the criteria.
    pub fn taken_volumes(&self, report: &GroupReport, names: &[String]) -> Vec<String> {
        let group = Indexed::new(report);
        let rows = rows::of_volumes(&group, names).filter(|row| self.any(*row));
        rows.filter_map(|row| row.volume).map(|volume| volume.name.clone()).collect()
    }

    /// Whether a labelled device meets the criteria; its group's report comes with it.
    pub fn takes_device(&self, group: Option<&Indexed<'_>>, label: &LabelledPv) -> bool {
        self.any(rows::of_label(label, group))
    }

    fn any(&self, row: Row<'_>) -> bool {
        let about = self.fields().map(|field| field.section.about());
        let finest = about.max_by_key(|about| *about as usize).unwrap_or(About::Group);
        rows::refine(row, finest).iter().any(|part| self.is_met(part))
    }
}
