//! The commands. A command gets a parsed command line. It asks for a report and decides, prints what it rounds or
//! reduces, asks for confirmation if data could be lost, and sends one request.

pub mod bundle;
pub mod config;
pub mod diff;
pub mod display;
pub mod documents;
pub mod facts;
pub mod features;
pub mod filesystem;
pub mod groups;
pub mod history;
pub mod info;
pub mod iostat;
pub mod lvchange;
pub mod lvconvert;
pub mod lvcreate;
pub mod lvremove;
pub mod lvrename;
pub mod lvresize;
pub mod meter;
pub mod metrics;
pub mod own;
pub mod places;
pub mod policy;
pub mod pv;
pub mod pv_edit;
pub mod pvmove;
pub mod receive;
pub mod receiving;
pub mod redundancy;
pub mod refused;
pub mod reports;
pub mod restricted;
pub mod scans;
pub mod send;
pub mod sources;
pub mod status;
pub mod top;
#[cfg(test)]
pub mod transfer_world;
pub mod tree;
pub mod trim;
pub mod upgrade;
pub mod vg;
pub mod vg_edit;
pub mod vgcfg;
