//! The kinds of report, and what each is called where.

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
    /// In JSON, and for `--configreport`.
    pub fn key(self) -> &'static str {
        match self {
            Kind::Volume => "lv",
            Kind::Segment => "seg",
            Kind::Group => "vg",
            Kind::Pv => "pv",
            Kind::Piece => "pvseg",
        }
    }

    /// What a field's name may leave out.
    pub fn prefix(self) -> &'static str {
        match self {
            Kind::Volume => "lv_",
            Kind::Segment => "seg_",
            Kind::Group => "vg_",
            Kind::Pv => "pv_",
            Kind::Piece => "pvseg_",
        }
    }

    /// The command's, which words the refusal of fields that do not go together.
    pub fn family(self) -> &'static str {
        match self {
            Kind::Volume | Kind::Segment => "lv",
            Kind::Group => "vg",
            Kind::Pv | Kind::Piece => "pv",
        }
    }

    /// What its rows are about when no field asks for more.
    pub fn about(self) -> About {
        match self {
            Kind::Volume => About::Volume,
            Kind::Segment => About::Segment,
            Kind::Group => About::Group,
            Kind::Pv => About::Pv,
            Kind::Piece => About::Piece,
        }
    }

    /// As settings of its columns and its order name it.
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
