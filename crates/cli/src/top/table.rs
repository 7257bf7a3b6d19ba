//! Tables that fit the screen. Columns are dropped by rank until the rest fits. Rows are sorted, those with a problem
//! first.

use super::face::{Face, Tone, shorten, width};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};
use std::cmp::Ordering;
use std::ops::Range;

/// The blanks between two columns.
const GAP: usize = 2;
/// Before the first column: the mark of a problem.
const MARK: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A name: as wide as possible, truncated at its end.
    Name,
    /// The same, truncated at its beginning.
    Path,
    Text,
    /// A text that gets the remaining width.
    Rest,
    Number,
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    pub form: Form,
    /// The column with the highest rank is dropped first.
    pub rank: u8,
}

/// The key by which cells are compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    Text(String),
    Number(f64),
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub text: String,
    pub key: Key,
    pub tone: Tone,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        // A path can have any characters. Control characters are not drawn.
        let text: String = text.into().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        Cell { key: Key::Text(text.clone()), text, tone: Tone::Plain }
    }

    pub fn number(text: impl Into<String>, key: f64) -> Cell {
        let tone = if key == 0.0 { Tone::Dim } else { Tone::Plain };
        Cell { text: text.into(), key: Key::Number(key), tone }
    }

    /// An unknown value.
    pub fn unknown() -> Cell {
        Cell { text: "-".into(), key: Key::Number(-1.0), tone: Tone::Dim }
    }

    fn is_unknown(&self) -> bool {
        self.text == "-"
    }

    pub fn toned(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    /// Finds the row again when it has moved.
    pub id: String,
    /// How serious its problem is: [`Tone::Bad`], [`Tone::Warn`], or no problem.
    pub tone: Tone,
    pub cells: Vec<Cell>,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub columns: &'static [Column],
    pub rows: Vec<Row>,
    /// The text if there is no row.
    pub empty: String,
    /// Columns without any known value are dropped first.
    pub is_sparse: bool,
}

/// The column by which rows are sorted, and whether in reverse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    pub column: usize,
    pub is_reversed: bool,
}

/// A column that is shown, and its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitted {
    pub column: usize,
    pub width: usize,
}

impl Table {
    /// Rows with a problem come first in any order.
    pub fn sort(&mut self, order: Order) {
        let compare = |one: &Row, other: &Row| {
            let wrong = other.tone.max(Tone::Strong).cmp(&one.tone.max(Tone::Strong));
            let by = match (one.cells.get(order.column), other.cells.get(order.column)) {
                (Some(one), Some(other)) => compare_keys(&one.key, &other.key),
                _ => Ordering::Equal,
            };
            let by = if order.is_reversed { by.reverse() } else { by };
            wrong.then(by).then_with(|| one.id.cmp(&other.id))
        };
        self.rows.sort_by(compare);
    }

    /// The columns that fit, in their order. The one by which rows are sorted has a mark.
    pub fn fit(&self, screen: usize, order: Order) -> Vec<Fitted> {
        let natural: Vec<usize> = (0..self.columns.len()).map(|column| self.natural(column, order)).collect();
        let least = |column: usize| match self.columns[column].form {
            Form::Name | Form::Path => natural[column].min(20),
            Form::Rest => natural[column].min(24),
            Form::Text | Form::Number => natural[column],
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needs = |shown: &[usize]| {
            MARK + shown.iter().map(|column| least(*column)).sum::<usize>() + GAP * shown.len().saturating_sub(1)
        };
        while shown.len() > 1 && needs(&shown) > screen {
            let rank = |column: usize| (self.is_sparse && self.is_unknown(column), self.columns[column].rank);
            let Some(at) = (0..shown.len()).max_by_key(|at| rank(shown[*at])) else { break };
            shown.remove(at);
        }
        let mut spare = screen.saturating_sub(needs(&shown));
        let mut fitted = Vec::with_capacity(shown.len());
        for column in shown {
            let more = (natural[column] - least(column)).min(spare);
            spare -= more;
            fitted.push(Fitted { column, width: (least(column) + more).min(screen.saturating_sub(MARK)) });
        }
        fitted
    }

    fn is_unknown(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.cells.get(column)).all(Cell::is_unknown)
    }

    fn natural(&self, column: usize, order: Order) -> usize {
        let Column { title, form, .. } = self.columns[column];
        let cells = self.rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| width(&cell.text));
        // Numbers change with each sample, but the widths of their columns must not.
        let least = if form == Form::Number { 6 } else { 0 };
        let mark = usize::from(order.column == column);
        cells.max().unwrap_or(0).max(width(title) + mark).max(least)
    }

    /// The headings, and these rows.
    pub fn lines(
        &self,
        (screen, face): (usize, Face),
        order: Order,
        rows: Range<usize>,
        at: Option<usize>,
    ) -> Vec<Line<'static>> {
        let fitted = self.fit(screen, order);
        let mut lines = vec![self.heading(&fitted, face, order)];
        if self.rows.is_empty() {
            let style = face.style(Tone::Dim);
            lines.push(Line::styled(shorten(&format!("  {}", self.empty), screen, face, false), style));
        }
        for number in rows {
            let Some(row) = self.rows.get(number) else { break };
            lines.push(row_line(row, self.columns, &fitted, (screen, face), at == Some(number)));
        }
        lines
    }

    fn heading(&self, fitted: &[Fitted], face: Face, order: Order) -> Line<'static> {
        let style = face.style(Tone::Strong);
        let mut spans = vec![Span::styled(" ".repeat(MARK), style)];
        for (at, Fitted { column, width }) in fitted.iter().enumerate() {
            let Column { title, form, .. } = self.columns[*column];
            let mark = match order {
                Order { column: by, .. } if by != *column => "",
                Order { is_reversed: true, .. } => face.falling(),
                _ => face.rising(),
            };
            let text = aligned(&format!("{title}{mark}"), *width, form, face);
            let underlined = style.add_modifier(Modifier::UNDERLINED);
            spans.push(Span::raw(" ".repeat(if at == 0 { 0 } else { GAP })));
            spans.push(Span::styled(text, if mark.is_empty() { style } else { underlined }));
        }
        Line::from(spans)
    }
}

fn compare_keys(one: &Key, other: &Key) -> Ordering {
    match (one, other) {
        (Key::Number(one), Key::Number(other)) => one.total_cmp(other),
        (Key::Text(one), Key::Text(other)) => one.cmp(other),
        // An unknown value is less than all others.
        (Key::Number(_), Key::Text(_)) => Ordering::Less,
        (Key::Text(_), Key::Number(_)) => Ordering::Greater,
    }
}

fn aligned(text: &str, room: usize, form: Form, face: Face) -> String {
    let text = shorten(text, room, face, form == Form::Path);
    let blanks = " ".repeat(room.saturating_sub(width(&text)));
    if form == Form::Number { blanks + &text } else { text + &blanks }
}

fn row_line(
    row: &Row,
    columns: &[Column],
    fitted: &[Fitted],
    (screen, face): (usize, Face),
    is_at: bool,
) -> Line<'static> {
    let at = if is_at { Modifier::REVERSED } else { Modifier::empty() };
    let style = |tone: Tone| -> Style { face.style(tone).add_modifier(at) };
    let mark = match row.tone {
        Tone::Bad => "! ",
        Tone::Warn => "* ",
        _ => "  ",
    };
    let mut spans = vec![Span::styled(mark, style(row.tone))];
    let mut used = MARK;
    for (number, Fitted { column, width: room }) in fitted.iter().enumerate() {
        let Some(cell) = row.cells.get(*column) else { continue };
        let gap = if number == 0 { 0 } else { GAP };
        spans.push(Span::styled(" ".repeat(gap), style(Tone::Plain)));
        spans.push(Span::styled(aligned(&cell.text, *room, columns[*column].form, face), style(cell.tone)));
        used += gap + room;
    }
    // The selected row is highlighted to the end of the line.
    spans.push(Span::styled(" ".repeat(if is_at { screen.saturating_sub(used) } else { 0 }), style(Tone::Plain)));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column { title: "NAME", form: Form::Name, rank: 0 },
        Column { title: "LEAST", form: Form::Number, rank: 9 },
        Column { title: "MORE", form: Form::Number, rank: 2 },
        Column { title: "WHY", form: Form::Rest, rank: 3 },
    ];
    const FACE: Face = Face { is_utf8: false, has_colours: false };

    fn row(name: &str, number: f64, tone: Tone) -> Row {
        let cells = vec![
            Cell::text(name),
            Cell::number(number.to_string(), number),
            Cell::unknown(),
            Cell::text("because of this and that"),
        ];
        Row { id: name.into(), tone, cells }
    }

    fn table() -> Table {
        let rows = vec![
            row("one-with-a-long-name", 3.0, Tone::Plain),
            row("two", 20.0, Tone::Plain),
            row("bad", 0.0, Tone::Bad),
        ];
        Table { columns: &COLUMNS, rows, empty: String::new(), is_sparse: false }
    }

    #[test]
    fn lines_are_never_wider_than_the_screen() {
        for screen in 0..90 {
            let lines = table().lines((screen, FACE), Order::default(), 0..3, Some(1));
            let most = lines.iter().map(Line::width).max().unwrap();
            assert!(most <= screen.max(MARK), "{screen}: {most}");
        }
    }

    #[test]
    fn columns_leave_by_their_rank() {
        let shown = |screen| {
            table().fit(screen, Order::default()).iter().map(|fitted| COLUMNS[fitted.column].title).collect::<Vec<_>>()
        };
        assert_eq!(shown(100), ["NAME", "LEAST", "MORE", "WHY"]);
        assert_eq!(shown(56), ["NAME", "MORE", "WHY"]);
        assert_eq!(shown(30), ["NAME", "MORE"]);
        let sparse = Table { is_sparse: true, ..table() };
        assert_eq!(
            sparse.fit(56, Order::default()).iter().map(|fitted| COLUMNS[fitted.column].title).collect::<Vec<_>>(),
            ["NAME", "LEAST", "WHY"]
        );
        assert_eq!(shown(10), ["NAME"]);
        assert_eq!(table().fit(100, Order::default())[0].width, 20, "a name takes what is spare");
    }

    #[test]
    fn what_is_wrong_comes_first_in_every_order() {
        let names = |order| {
            let mut table = table();
            table.sort(order);
            table.rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
        };
        for (column, is_reversed, second) in
            [(0, false, "one-with-a-long-name"), (0, true, "two"), (1, true, "two"), (1, false, "one-with-a-long-name")]
        {
            let names = names(Order { column, is_reversed });
            assert_eq!((names[0].as_str(), names[1].as_str()), ("bad", second), "{column} {is_reversed}");
        }
    }
}
