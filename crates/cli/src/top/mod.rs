//! The full-screen view of `rowen top`.
//!
//! [`look`] turns what was seen of the groups into what is known of them, [`model`] holds what is known and what the user chose,
//! and changes only by events. [`views`] make tables of the model, [`table`] fits and sorts them, [`draw`] makes a frame of
//! them: all of it without a clock, a terminal or a thread, so that tests see every frame. [`screen`] has the terminal, and
//! [`run`] the threads that bring the events.
//!
//! * TO1 Nothing that hangs holds up the keys: the thread that draws waits for events alone.
//! * TO2 The terminal is as it was, however the command ends or is stopped.

pub mod draw;
pub mod face;
pub mod keys;
pub mod look;
pub mod model;
pub mod pace;
pub mod run;
pub mod screen;
pub mod table;
pub mod view;
pub mod views;

#[cfg(test)]
mod draw_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
pub mod sample;
