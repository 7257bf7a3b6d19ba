//! The views, by their numbers.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Groups,
    Volumes,
    Snapshots,
    Disks,
    Work,
}

impl View {
    pub const ALL: [View; 5] = [View::Groups, View::Volumes, View::Snapshots, View::Disks, View::Work];

    pub fn title(self) -> &'static str {
        ["Groups", "Volumes", "Snapshots", "Disks", "Work"][self as usize]
    }

    pub fn numbered(digit: char) -> Option<View> {
        let number = digit.to_digit(10)?.checked_sub(1)?;
        View::ALL.get(number as usize).copied()
    }

    /// The view this many steps further, cyclically.
    pub fn other(self, step: usize) -> View {
        View::ALL[(self as usize + step) % View::ALL.len()]
    }
}
