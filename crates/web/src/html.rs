//! Text that becomes markup.

use crate::planted;
use std::fmt::{self, Display, Write};

/// A page in the making. Markup is only what stands in the program's own sources (WB2): the compiler sees to it.
#[derive(Default)]
pub struct Html(String);

impl Html {
    /// Markup of this program.
    pub fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// What comes from outside, as text or as the value of an attribute in double quotes.
    pub fn text(&mut self, text: impl Display) -> &mut Self {
        let _infallible = write!(Escaped(&mut self.0), "{text}");
        self
    }

    /// An element that has only a text.
    pub fn element(&mut self, begin: &'static str, text: impl Display, end: &'static str) -> &mut Self {
        self.raw(begin).text(text).raw(end)
    }

    pub fn finish(self) -> String {
        self.0
    }
}

struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                c if planted::is("text_is_markup") => self.0.push(c),
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c if is_hostile(c) => self.0.push(char::REPLACEMENT_CHARACTER),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// Characters that are not shown, or that change the order in which others are.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_no_markup() {
        let mut html = Html::default();
        html.raw("<b title=\"").text("\" onload='x").raw("\">").text("</b><script>&\u{202e}\0x").raw("</b>");
        let expected = "<b title=\"&quot; onload=&#39;x\">&lt;/b&gt;&lt;script&gt;&amp;\u{fffd}\u{fffd}x</b>";
        assert_eq!(html.finish(), expected, "WB2");
    }
}
