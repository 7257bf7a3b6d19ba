//! The look of the screen: tones, and the characters of frames.

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Span;

/// The importance of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    #[default]
    Plain,
    Dim,
    Good,
    Strong,
    Warn,
    Bad,
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Face {
    pub is_utf8: bool,
    pub has_colours: bool,
}

impl Face {
    /// Colours are never the only sign: important text is also bold, and rows with a problem have a mark.
    pub fn style(self, tone: Tone) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let coloured = |style: Style, colour| if self.has_colours { style.fg(colour) } else { style };
        match tone {
            Tone::Plain => Style::new(),
            Tone::Dim => Style::new().add_modifier(Modifier::DIM),
            Tone::Good => coloured(Style::new(), Color::Green),
            Tone::Strong => bold,
            Tone::Warn => coloured(bold, Color::Yellow),
            Tone::Bad => coloured(bold, Color::Red),
        }
    }

    fn pick(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.is_utf8 { unicode } else { ascii }
    }

    /// The sign of truncated text.
    pub fn cut(self) -> &'static str {
        self.pick("…", "~")
    }

    pub fn falling(self) -> &'static str {
        self.pick("▾", "v")
    }

    pub fn rising(self) -> &'static str {
        self.pick("▴", "^")
    }

    pub fn arrows(self) -> &'static str {
        self.pick("↑↓", "jk")
    }

    /// A bar with this share filled.
    pub fn bar(self, share: f64, width: usize) -> String {
        let full = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
        let (on, off) = if self.is_utf8 { ("█", "░") } else { ("#", "-") };
        on.repeat(full) + &off.repeat(width - full)
    }
}

/// The columns that a text takes on the screen.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Span::raw(text).width() }
}

/// Removes characters at the beginning or the end of the text until it has at most this many columns.
pub fn shorten(text: &str, most: usize, face: Face, keeps_end: bool) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let Some(room) = most.checked_sub(1) else { return String::new() };
    let mut kept: Vec<char> = Vec::new();
    let mut used = 0;
    let chars: Box<dyn Iterator<Item = char>> =
        if keeps_end { Box::new(text.chars().rev()) } else { Box::new(text.chars()) };
    for c in chars {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > room {
            break;
        }
        kept.push(c);
    }
    if keeps_end {
        face.cut().to_owned() + &kept.iter().rev().collect::<String>()
    } else {
        kept.iter().collect::<String>() + face.cut()
    }
}

/// The text in lines of at most this many columns, broken between words if possible. All lines but the first are
/// indented.
pub fn wrap(text: &str, most: usize, indent: usize) -> Vec<String> {
    let indent = indent.min(most.saturating_sub(1));
    let (mut lines, mut line, mut is_begun) = (Vec::new(), String::new(), false);
    for word in text.split(' ') {
        let mut word = word;
        if is_begun && width(&line) + 1 + width(word) <= most {
            line.push(' ');
        } else if is_begun {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        }
        is_begun = true;
        // A word that is wider than a line continues in the next line.
        while width(&line) + width(word) > most && most > indent {
            let room = most.saturating_sub(width(&line)).max(1);
            let at = word.char_indices().nth(room).map_or(word.len(), |(at, _)| at);
            line.push_str(&word[..at]);
            word = &word[at..];
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACE: Face = Face { is_utf8: true, has_colours: false };

    #[test]
    fn long_texts_are_cut_where_it_says() {
        assert_eq!(shorten("/dev/disk/by-id/scsi-1", 8, FACE, true), "…/scsi-1");
        assert_eq!(shorten("a-long-name", 8, FACE, false), "a-long-…");
        assert_eq!(shorten("a-long-name", 11, FACE, false), "a-long-name");
        assert_eq!(["", "…", "…"], [0, 1, 2].map(|most| shorten("日本", most, FACE, false)));
        let ascii = Face { is_utf8: false, ..FACE };
        assert_eq!(shorten("a-long-name", 3, ascii, false), "a-~");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrap("next: remove snapshots", 16, 6), ["next: remove", "      snapshots"]);
        assert_eq!(wrap("abcdefghij", 4, 0), ["abcd", "efgh", "ij"]);
        for most in 0..20 {
            let lines = wrap("some words and averyveryverylongone of them", most, 4);
            assert!(most == 0 || lines.iter().all(|line| width(line) <= most), "{most}: {lines:?}");
            let all: String = lines.concat().split(' ').collect();
            assert_eq!(all, "somewordsandaveryveryverylongoneofthem", "{most}");
        }
    }

    #[test]
    fn a_bar_has_its_width_whatever_the_share() {
        for share in [-1.0, 0.0, 0.33, 1.0, 7.0, f64::NAN] {
            assert_eq!(FACE.bar(share, 9).chars().count(), 9);
        }
    }
}
