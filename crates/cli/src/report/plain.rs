//! Tables of Rowen's own commands: headings, and below them columns that are as wide as what they have.

use super::layout::{pad, width};

/// A table; nothing without rows.
pub fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let headings = headings.map(str::to_owned);
    let lines = || std::iter::once(&headings).chain(rows);
    let widths: [usize; N] =
        std::array::from_fn(|column| lines().map(|line| width(&line[column])).max().unwrap_or_default());
    let mut text = String::new();
    for line in lines() {
        // Nothing is behind the last cell that has something.
        let last = line.iter().rposition(|cell| !cell.is_empty()).unwrap_or_default();
        text.push_str("  ");
        for (cell, widest) in line.iter().zip(widths).take(last) {
            text.push_str(cell);
            pad(&mut text, widest - width(cell) + 1);
        }
        text.push_str(&line[last]);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_they_have() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["a name that is long", "b", ""]), row(["\u{e4}", "", "c"])];
        let told = "  NAME                IS  FOR\n  a name that is long b\n  \u{e4}                       c\n";
        assert_eq!(table(["NAME", "IS ", "FOR"], &rows), told);
        assert_eq!(table::<1>(["NAME"], &[]), "");
    }
}
