//! The full-screen view of `rowen top`.
//!
//! [`sample`] takes samples of the groups. [`model`] has the state and the user's choices; only events change it.
//! [`views`] make tables of the model, [`table`] fits and sorts them, and [`draw`] makes a frame of them. These modules
//! use no clock, terminal or thread, so tests see every frame. [`screen`] owns the terminal, and [`run`] the threads
//! that send events.
//!
//! * TO1 Keys work even if a group or device hangs: the thread that draws waits only for events.
//! * TO2 The terminal gets its old state back, however the command ends or is stopped.

pub mod draw;
pub mod face;
pub mod keys;
pub mod model;
pub mod pace;
pub mod run;
pub mod sample;
pub mod screen;
pub mod table;
pub mod view;
pub mod views;

#[cfg(test)]
mod draw_test;
#[cfg(test)]
pub mod fixtures;
#[cfg(test)]
mod model_test;
