//! Who uses a device that we may not use: found for the error's sentence, and for the uses that no exclusive open shows
//! (a file under a loop device, a swap file).

use super::plain::Identity;
use std::path::{Path, PathBuf};

/// What keeps the device from being used, as a phrase that follows "it is".
pub fn of(path: &Path, identity: Identity) -> Option<String> {
    match identity {
        Identity::Block(number) => {
            let numbers = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
            mounted(&numbers).or_else(|| swap(identity)).or_else(|| held(&numbers))
        }
        Identity::File(..) => loop_over(path, identity).or_else(|| swap(identity)).or_else(|| locked(identity)),
    }
}

fn mounted(numbers: &str) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == numbers).then(|| fields.nth(1).map(|point| format!("mounted on {point}")))?
    })
}

fn swap(identity: Identity) -> Option<String> {
    let table = std::fs::read_to_string("/proc/swaps").ok()?;
    let mut swaps = table.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    swaps.any(|path| Identity::of(Path::new(path)) == Some(identity)).then(|| "used as swap".to_owned())
}

fn held(numbers: &str) -> Option<String> {
    let mut holders = std::fs::read_dir(format!("/sys/dev/block/{numbers}/holders")).ok()?;
    let holder = holders.next()?.ok()?;
    Some(format!("used by {}", holder.file_name().to_string_lossy()))
}

/// The loop devices of this host and the files under them.
pub fn loops() -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let names = std::fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.as_encoded_bytes().starts_with(b"loop")).filter_map(|name| {
        let file = std::fs::read_to_string(Path::new("/sys/block").join(&name).join("loop/backing_file")).ok()?;
        Some((Path::new("/dev").join(&name), PathBuf::from(file.trim_end_matches('\n'))))
    })
}

fn loop_over(path: &Path, identity: Identity) -> Option<String> {
    let real = std::fs::canonicalize(path).ok();
    let (device, _) = loops()
        .find(|(_, backing)| Some(backing) == real.as_ref() || Identity::of(backing) == Some(identity))?;
    Some(format!("attached to {}", device.display()))
}

fn locked(identity: Identity) -> Option<String> {
    let Identity::File(_, inode) = identity else { return None };
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    let ending = format!(":{inode}");
    let pid = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5)?.ends_with(&ending)).then(|| fields[4].to_owned())
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("held by process {pid} ({})", name.trim()))
}
