//! The output for people. A reader that goes away early stops nothing.

use std::fmt::Arguments;
use std::io::{self, Write};

/// A line of output.
macro_rules! say {
    ($($word:tt)*) => { $crate::console::line(&mut ::std::io::stdout().lock(), format_args!($($word)*)) };
}

/// A line about something that is wrong.
macro_rules! complain {
    ($($word:tt)*) => { $crate::console::line(&mut ::std::io::stderr().lock(), format_args!($($word)*)) };
}

pub fn line(to: &mut dyn Write, text: Arguments<'_>) {
    let _nobody_may_read: io::Result<()> = writeln!(to, "{text}");
}
