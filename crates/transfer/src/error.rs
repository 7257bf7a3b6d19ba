//! What can be wrong with a stream, as the user reads it.

use std::fmt;
use std::io;

/// Why a stream cannot be read.
#[derive(Debug)]
pub enum StreamError {
    /// The bytes could not be read.
    Io(io::Error),
    /// Not one byte came.
    Empty,
    /// It ends before its end.
    Cut,
    /// It begins with something else.
    NoStream,
    /// A frame is not as it was written.
    Damaged { frame: u64, byte: u64 },
    /// The frames are whole, and are not those that the end or a mark is of.
    OtherFrames,
    /// A newer program wrote it.
    Newer(String),
    /// What it says makes no sense.
    Malformed(&'static str),
    /// Something follows its end.
    GoesOn,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Io(error) => write!(f, "the stream cannot be read: {error}"),
            StreamError::Empty => f.write_str("nothing came: see what the sender says"),
            StreamError::Cut => f.write_str("the stream ends before its end"),
            StreamError::NoStream => f.write_str("what came is no stream of \"rowen send\""),
            StreamError::Damaged { frame, byte } => {
                write!(f, "the stream is damaged: frame {frame}, at byte {byte}, is not what was sent there")
            }
            StreamError::OtherFrames => f.write_str("the stream's frames are not those that were sent"),
            StreamError::Newer(what) => write!(f, "a newer program made it: {what}"),
            StreamError::Malformed(what) => write!(f, "it makes no sense: {what}"),
            StreamError::GoesOn => f.write_str("something follows the end of the stream"),
        }
    }
}

impl std::error::Error for StreamError {}
