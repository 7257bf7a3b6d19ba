//! The requests of a system to its disk, with the times of their submission and completion. They were recorded by the
//! server in front of the disk (nbdkit's log filter) or by Rowen itself (`ROWEN_RECORD_IO`).
//!
//! Promise: requests come in the order of their submission; one without an end, cut off by the end of the record, is dropped.

use std::collections::HashMap;

/// A request to a disk. A discard takes a modelled disk no time and is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
    Flush,
}

/// Times in microseconds, of any clock; places in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub op: Op,
    pub offset: u64,
    pub len: u64,
    /// A write that must be on the medium before it is answered.
    pub durable: bool,
    pub submitted: u64,
    pub completed: u64,
}

/// Reads nbdkit's log: a line when a request comes and one when it is answered.
///
/// `2026-11-21 13:51:01.656643 connection=1 Write id=4 offset=0x0 count=0x20000 fua=1 ...`
/// `2026-11-21 13:51:01.657389 connection=1 ...Write id=4 return=0`
pub fn from_nbdkit(text: &str) -> Result<Vec<Request>, String> {
    let mut open: HashMap<(&str, &str), Request> = HashMap::new();
    let mut requests = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {} of the log, {what}: {line}", n + 1);
        let mut words = line.split_whitespace();
        let (Some(day), Some(clock)) = (words.next(), words.next()) else { continue };
        let mut fields = HashMap::new();
        let mut name = "";
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => drop(fields.insert(key, value)),
                None if name.is_empty() => name = word,
                None => {}
            }
        }
        let op = match name.trim_start_matches('.') {
            "Read" => Op::Read,
            "Write" | "Zero" => Op::Write,
            "Flush" => Op::Flush,
            _ => continue,
        };
        let at = micros(day, clock).ok_or_else(|| wrong("a time that is none"))?;
        let connection = fields.get("connection").copied().unwrap_or("");
        let id = fields.get("id").copied().ok_or_else(|| wrong("no id"))?;
        if name.starts_with("...") {
            if let Some(mut request) = open.remove(&(connection, id)) {
                if fields.get("return").copied() != Some("0") {
                    return Err(wrong("the disk failed"));
                }
                request.completed = at;
                requests.push(request);
            }
            continue;
        }
        let number = |key: &str| -> Result<u64, String> {
            let text = fields.get(key).and_then(|text| text.strip_prefix("0x")).unwrap_or("0");
            u64::from_str_radix(text, 16).map_err(|_| wrong("a place that is none"))
        };
        let (offset, len) = (number("offset")?, number("count")?);
        let durable = fields.get("fua").is_some_and(|fua| *fua == "1");
        open.insert((connection, id), Request { op, offset, len, durable, submitted: at, completed: at });
    }
    requests.sort_by_key(|request| (request.submitted, request.completed));
    Ok(requests)
}

/// Reads Rowen's own record: `begin OP ID PV OFFSET LENGTH MICROSECONDS` and `end ID MICROSECONDS`. Physical volumes after
/// the first are other disks and are left out.
pub fn from_rowen(text: &str) -> Result<Vec<Request>, String> {
    let mut open: HashMap<&str, Vec<Request>> = HashMap::new();
    let mut requests = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let wrong = || format!("line {} of the record is not understood: {line}", n + 1);
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).ok_or_else(wrong);
        match words[..] {
            ["begin", op, id, _, _, _, _] => {
                let op = match op {
                    "read" => Op::Read,
                    "write" => Op::Write,
                    "flush" => Op::Flush,
                    "discard" => continue,
                    _ => return Err(wrong()),
                };
                let at = number(6)?;
                let request =
                    Request { op, offset: number(4)?, len: number(5)?, durable: false, submitted: at, completed: at };
                if number(3)? == 0 {
                    open.entry(id).or_default().push(request);
                }
            }
            ["end", id, _] => {
                let at = number(2)?;
                let parts = open.remove(id).unwrap_or_default();
                requests.extend(parts.into_iter().map(|request| Request { completed: at, ..request }));
            }
            // The last line of a server that was killed.
            _ if n + 1 == text.lines().count() => {}
            _ => return Err(wrong()),
        }
    }
    requests.sort_by_key(|request| (request.submitted, request.completed));
    Ok(requests)
}

/// The requests that were submitted between two times.
pub fn between(requests: &[Request], begin: u64, end: u64) -> &[Request] {
    let from = requests.partition_point(|request| request.submitted < begin);
    let to = requests.partition_point(|request| request.submitted <= end);
    &requests[from..to.max(from)]
}

/// Microseconds since 1970 of a day and a time in UTC.
fn micros(day: &str, clock: &str) -> Option<u64> {
    let numbers = |text: &str, by: char| -> Option<Vec<u64>> { text.split(by).map(|n| n.parse().ok()).collect() };
    let [year, month, day] = numbers(day, '-')?[..] else { return None };
    let (whole, fraction) = clock.split_once('.')?;
    let [hours, minutes, seconds] = numbers(whole, ':')?[..] else { return None };
    // Days since 1970 in the Gregorian calendar, the year beginning in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day.checked_sub(1)?;
    let days = days.checked_sub(719_468)?;
    let seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    Some(seconds * 1_000_000 + fraction.parse::<u64>().ok().filter(|_| fraction.len() == 6)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-11-21 13:51:01.000100 connection=1 Connect export=\"\" tls=0 size=0x80000000 write=1 ...
2026-11-21 13:51:01.656643 connection=1 Read id=4 offset=0x0 count=0x20000 ...
2026-11-21 13:51:01.656700 connection=1 Write id=5 offset=0x1000 count=0x1000 fua=1 ...
2026-11-21 13:51:01.657000 connection=1 ...Write id=5 return=0
2026-11-21 13:51:01.657389 connection=1 ...Read id=4 return=0
2026-11-21 13:51:01.700000 connection=1 Flush id=6 ...
2026-11-21 13:51:01.700001 connection=1 ...Flush id=6 return=0
2026-11-21 13:51:01.800000 connection=1 Write id=7 offset=0x1000 count=0x1000 fua=0 ...
";

    #[test]
    fn nbdkits_log_becomes_requests() {
        let requests = from_nbdkit(LOG).unwrap();
        let base = 1_795_269_061_000_000;
        let write = Request {
            op: Op::Write,
            offset: 4096,
            len: 4096,
            durable: true,
            submitted: base + 656_700,
            completed: base + 657_000,
        };
        assert_eq!(requests.iter().map(|r| r.op).collect::<Vec<_>>(), [Op::Read, Op::Write, Op::Flush]);
        assert_eq!(requests[1], write);
        assert_eq!(requests[0].completed, base + 657_389);
        assert_eq!(between(&requests, base + 656_700, base + 656_700), &[write]);
        assert!(between(&requests, base + 900_000, base).is_empty());
        assert!(from_nbdkit(&LOG.replace("id=5 return=0", "id=5 return=-1")).unwrap_err().contains("failed"));
        assert!(from_nbdkit(&LOG.replace("offset=0x1000", "offset=0xzz")).is_err());
    }

    #[test]
    fn rowens_record_becomes_requests() {
        let text = "begin write 1 0 8192 4096 10\nbegin write 1 0 65536 4096 10\nbegin flush 2 0 0 0 11\nend 1 15\n\
                    begin read 3 1 0 4096 16\nend 3 17\nend 2 18\nbegin read 4 0 0 40";
        let requests = from_rowen(text).unwrap();
        assert_eq!(requests.len(), 3);
        assert_eq!((requests[1].offset, requests[1].completed), (65536, 15));
        assert_eq!((requests[2].op, requests[2].completed), (Op::Flush, 18));
        assert!(from_rowen("begin leap 1 0 0 0 0\nend 1 2\n").is_err());
    }
}
