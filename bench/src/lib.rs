//! Measuring Rowen against what is below it, on the same disk in the same run.

pub mod load;
