//! The kinds of report and their names.

use super::field::About;

/// The kinds of report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Volume,
    Segment,
    Group,
    Pv,
    Piece,
}

impl Kind {
    /// The name in JSON and for `--configreport`.
    pub fn key(self) -> &'static str {
        match self {
            Kind::Volume => "lv",
            Kind::Segment => "seg",
            Kind::Group => "vg",
            Kind::Pv => "pv",
            Kind::Piece => "pvseg",
        }
    }

    /// The prefix that a field's name can omit.
    pub fn prefix(self) -> &'static str {
        match self {
            Kind::Volume => "lv_",
            Kind::Segment => "seg_",
            Kind::Group => "vg_",
            Kind::Pv => "pv_",
            Kind::Piece => "pvseg_",
        }
    }

    /// The command's name in the message about incompatible fields.
    pub fn family(self) -> &'static str {
        match self {
            Kind::Volume | Kind::Segment => "lv",
            Kind::Group => "vg",
            Kind::Pv | Kind::Piece => "pv",
        }
    }

    /// What its rows describe if no field needs finer ones.
    pub fn about(self) -> About {
        match self {
            Kind::Volume => About::Volume,
            Kind::Segment => About::Segment,
            Kind::Group => About::Group,
            Kind::Pv => About::Pv,
            Kind::Piece => About::Piece,
        }
    }

    /// Its name in settings for columns and order.
    pub fn setting(self) -> &'static str {
        match self {
            Kind::Volume => "lvs",
            Kind::Segment => "segs",
            Kind::Group => "vgs",
            Kind::Pv => "pvs",
            Kind::Piece => "pvsegs",
        }
    }

    /// The sections that `-o all` stands for.
    pub fn all_sections(self) -> &'static [&'static str] {
        match self {
            Kind::Volume => &["lv_all", "vg_all"],
            Kind::Segment => &["seg_all", "lv_all", "vg_all"],
            Kind::Group => &["vg_all"],
            Kind::Pv => &["pv_all", "vg_all"],
            Kind::Piece => &["pvseg_all", "pv_all", "vg_all"],
        }
    }
}
