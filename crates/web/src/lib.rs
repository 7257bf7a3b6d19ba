//! `rowen-web`: a page about the volume groups of a host, to look at and nothing else. A process without rights answers HTTP
//! ([`http`], [`site`]) from one file of facts ([`facts`]), which `rowen facts` writes every few seconds. So whatever hangs, the
//! page does not; and whatever the page's process does, no volume group notices (ADR 0035).
//!
//! * WB1 The process reads its file of facts, and nothing else of the host. It asks no server and writes nothing.
//! * WB2 Markup is what is written in this crate; all that comes from outside is text, whatever it holds.
//! * WB3 Facts have an age, which no change of the clock alters. The page shows it, and old facts are something that is wrong.
//!
//! `rowen metrics --listen` uses [`http`], too.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod facts;
mod group;
mod html;
pub mod http;
mod page;
mod planted;
mod plot;
pub mod site;
mod words;

#[cfg(test)]
mod page_test;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod site_test;
