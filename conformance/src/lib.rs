//! Rowen against LVM2. This crate compares what the same commands did in two worlds, Rowen's and that of the real LVM2: their
//! output, exit codes and names under `/dev`. What they did comes as transcripts ([`transcript`]); what need not be equal is taken
//! out of both ([`normal`]); what is different and may be so stands in lists with a reason each ([`rules`]). It promises that
//! a difference which no list explains is reported ([`compare`]), and so is an explanation that nothing needs.
#![forbid(unsafe_code)]

pub mod compare;
pub mod normal;
pub mod rules;
pub mod transcript;

#[cfg(test)]
mod compare_test;
#[cfg(test)]
mod scripts_test;
