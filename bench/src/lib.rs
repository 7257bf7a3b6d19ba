//! Measuring Rowen against what is below it, on the same disk in the same run.
//!
//! Each experiment takes raw and Rowen in turn, in slices of a fraction of a second, so that both see the same weather;
//! what counts is the ratio of a round, and of the rounds the median.

pub mod commands;
pub mod load;
pub mod report;
pub mod world;

pub mod creation;
pub mod device;
pub mod layers;
pub mod memory;
pub mod plain;
pub mod published;
pub mod reading;
pub mod recovery;
pub mod redirect;
pub mod removal;
pub mod scattered;
pub mod volumes;
