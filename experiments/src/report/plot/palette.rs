//! The colours of plots, on light and on dark paper.
//!
//! The library writes the light ones into the SVG, where programs without styles show them. The [`style`] replaces each one by
//! its dark counterpart if the reader prefers that. All have a contrast of at least 4.5 to their paper, because names are
//! written in them, except for the grid. Systems that meet in a plot differ in lightness, too: readers who see fewer colours
//! distinguish them.

use plotters::style::RGBColor;

/// A colour by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Ink,
    Grid,
    Grey,
    Orange,
    Ochre,
    Purple,
    Blue,
    Green,
    Pink,
}

/// The papers of the page, light and dark.
#[cfg(test)]
pub const PAPERS: [u32; 2] = [0x00FF_FFFF, 0x0016_1616];

impl Colour {
    pub const ALL: [Colour; 9] = [
        Colour::Ink,
        Colour::Grid,
        Colour::Grey,
        Colour::Orange,
        Colour::Ochre,
        Colour::Purple,
        Colour::Blue,
        Colour::Green,
        Colour::Pink,
    ];

    /// Of a system. Systems of one experiment differ.
    pub fn of(system: &str) -> Colour {
        match system {
            "raw" | "directory" => Colour::Grey,
            "LVM classic" | "mdadm raid1" => Colour::Orange,
            "LVM thin" => Colour::Ochre,
            "LVM raid1" | "xfs reflink" => Colour::Purple,
            "Rowen" => Colour::Blue,
            "btrfs" => Colour::Green,
            "Rowen mirror" => Colour::Pink,
            _ => Colour::Ink,
        }
    }

    /// As red, green and blue: on light paper, on dark paper.
    pub fn values(self) -> [u32; 2] {
        match self {
            Colour::Ink => [0x1C_1C_1C, 0xE6_E6_E6],
            Colour::Grid => [0xD8_D8_D8, 0x44_44_44],
            Colour::Grey => [0x70_70_70, 0x94_94_94],
            Colour::Orange => [0xC2_41_0C, 0xFF_8A_4C],
            Colour::Ochre => [0x52_3A_00, 0xF0_DC_82],
            Colour::Purple => [0x4B_1A_73, 0xDD_C2_FF],
            Colour::Blue => [0x00_68_B8, 0x4A_A8_F0],
            Colour::Green => [0x0B_5A_33, 0x63_E6_A5],
            Colour::Pink => [0xB0_2A_78, 0xFF_8C_C8],
        }
    }

    /// The one that the library writes.
    pub fn light(self) -> RGBColor {
        let [_, red, green, blue] = self.values()[0].to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// The rules that make the colours of plots dark for readers who prefer that.
pub fn style() -> String {
    let rule = |colour: Colour| {
        let [light, dark] = colour.values();
        ["fill", "stroke"].map(|kind| format!(".plot [{kind}=\"#{light:06X}\"]{{{kind}:#{dark:06X}}}")).concat()
    };
    format!("@media screen and (prefers-color-scheme:dark){{{}}}", Colour::ALL.map(rule).concat())
}
