//! Where names stand so that they do not overlap.

/// Centres for labels of one height between `top` and `bottom` that do not overlap, as near to the wanted ones as possible
/// (least squares). Their order stays. If there is no room for all, the last ones stand below `bottom`.
pub fn spread(wanted: &[f64], height: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Without the heights of those above it, each one's place must be no less than the one's before it: neighbours that are in
    // the wrong order share their mean.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (above, at) in order.iter().enumerate() {
        let mut group = (wanted[*at] - above as f64 * height, 1);
        while let Some((mean, count)) = groups.pop_if(|(mean, _)| *mean > group.0) {
            let all = count + group.1;
            group = ((mean * count as f64 + group.0 * group.1 as f64) / all as f64, all);
        }
        groups.push(group);
    }
    let (first, last) = (top + height / 2.0, bottom - height * (wanted.len() as f64 - 0.5));
    let means = groups.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean.min(last).max(first), count));
    let mut places = vec![0.0; wanted.len()];
    for (above, (at, mean)) in order.into_iter().zip(means).enumerate() {
        places[at] = mean + above as f64 * height;
    }
    places
}

/// Words in lines of at most so many characters; a longer word has a line of its own.
pub fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Words along an axis: in how many rows they alternate, which of them are written, and their lines.
#[derive(Debug, PartialEq)]
pub struct Along {
    pub rows: usize,
    pub every: usize,
    pub lines: Vec<Vec<String>>,
}

/// Ticks that have room for `slot` characters each: in one row, in two that alternate, or only some of them in words.
pub fn along(ticks: &[String], slot: f64) -> Along {
    let longest = |lines: &[Vec<String>]| {
        lines.iter().flatten().map(|line| line.chars().count()).max().unwrap_or_default() as f64
    };
    let wrapped = |room: f64| -> Vec<Vec<String>> { ticks.iter().map(|tick| wrap(tick, room as usize)).collect() };
    for (rows, every) in [(1, 1), (2, 1), (1, 2), (1, 3), (1, 4)] {
        // One character stays free between two words.
        let room = slot * (rows * every) as f64 - 1.0;
        let lines = wrapped(room);
        if longest(&lines) <= room {
            return Along { rows, every, lines };
        }
    }
    let every = ticks.len().max(1);
    Along { rows: 1, every, lines: wrapped(slot * every as f64) }
}
