//! The entries of a store's log: what each says, and its bytes. And the names of all objects.

use super::error::{Result, StoreError};
use super::seal::{From, Seal, put_number, put_text};

pub const MAGIC: [u8; 4] = *b"RwLg";
pub const VERSION: u16 = 1;

/// The hint, and the first object of a store.
pub const HEAD: &str = "head";
pub const HEADER: &str = "rowen-store";

pub fn entry_name(number: u64) -> String {
    format!("log/{number:016x}")
}

pub fn state_name(number: u64) -> String {
    format!("s/{number:016x}")
}

/// What a segment has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Blocks of volumes.
    Data,
    /// Pages of maps, and tables.
    Map,
}

impl Kind {
    pub fn code(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::Map => 2,
        }
    }

    pub fn of(code: u8) -> Option<Kind> {
        [Kind::Data, Kind::Map].into_iter().find(|kind| kind.code() == code)
    }

    pub fn prefix(self) -> &'static str {
        match self {
            Kind::Data => "d/",
            Kind::Map => "m/",
        }
    }

    pub fn name(self, number: u64) -> String {
        format!("{}{number:016x}", self.prefix())
    }
}

/// Numbers of segments that one job has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub kind: Kind,
    pub first: u64,
    pub count: u64,
}

impl Numbers {
    pub fn end(&self) -> u64 {
        self.first + self.count
    }

    pub fn all(&self) -> impl Iterator<Item = (Kind, u64)> + use<> {
        let kind = self.kind;
        (self.first..self.end()).map(move |number| (kind, number))
    }
}

/// What a push makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The name of the volume in the store, and of its point.
    pub volume: String,
    pub point: String,
    /// The identity of the contents.
    pub uuid: [u8; 16],
    /// The group that it comes from, and when its snapshot was made.
    pub group: [u8; 16],
    pub group_name: String,
    pub made: u64,
    /// Blocks, bytes of a sector, whether the volume has its space from the beginning.
    pub blocks: u64,
    pub sector: u32,
    pub thick: bool,
}

/// Where a point's table is, and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The address of its frame.
    pub at: u64,
    /// Blocks with data, and bytes that the push uploaded.
    pub data_blocks: u64,
    pub uploaded: u64,
}

/// What an entry says. A job's number is that of the entry that began it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// A push begins. Its base is a point of the state.
    Begin { about: About, base: Option<u64>, numbers: Vec<Numbers> },
    /// A job needs more numbers.
    More { job: u64, numbers: Vec<Numbers> },
    /// What an open job uploaded belongs to a new one from now on, which has these numbers, too. It goes on with block `from` of the volume
    /// (SO7). None: an older program, which did not say it.
    TakeOver { job: u64, from: Option<u64>, numbers: Vec<Numbers> },
    /// The job's point is in the store.
    Commit { job: u64, table: Table },
    /// The job will not be ended by its writer.
    Abandon { job: u64 },
    /// These points are in the store no more.
    Forget { points: Vec<u64> },
    /// These segments were deleted.
    Cleaned { numbers: Vec<Numbers> },
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub number: u64,
    /// The hash of the entry before it.
    pub before: [u8; 32],
    /// Who made it: random for each program that runs, so that no two writers make equal entries.
    pub writer: [u8; 16],
    /// Seconds since 1970, for people.
    pub time: u64,
    pub say: Say,
}

pub fn put_numbers(out: &mut Vec<u8>, numbers: &[Numbers]) {
    put_number(out, numbers.len() as u64);
    for range in numbers {
        out.push(range.kind.code());
        put_number(out, range.first);
        put_number(out, range.count);
    }
}

pub fn numbers(from: &mut From<'_>) -> Result<Vec<Numbers>> {
    let count = from.count(3)?;
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = Kind::of(from.u8()?).ok_or_else(|| from.damaged("there is no such kind of object"))?;
        let (first, count) = (from.number()?, from.number()?);
        if first == 0 || first.checked_add(count).is_none_or(|end| end > super::MOST_NUMBERS) {
            return Err(from.damaged("its numbers are impossible"));
        }
        numbers.push(Numbers { kind, first, count });
    }
    Ok(numbers)
}

/// A block of a volume, or the one behind its end.
pub fn block(from: &mut From<'_>) -> Result<u64> {
    let block = from.number()?;
    if block > 1 << 47 { Err(from.damaged("it names an impossible block")) } else { Ok(block) }
}

impl About {
    pub fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.volume);
        put_text(out, &self.point);
        out.extend(self.uuid);
        out.extend(self.group);
        put_text(out, &self.group_name);
        put_number(out, self.made);
        put_number(out, self.blocks);
        out.extend(self.sector.to_le_bytes());
        out.push(u8::from(self.thick));
    }

    pub fn read(from: &mut From<'_>) -> Result<About> {
        let about = About {
            volume: from.text()?,
            point: from.text()?,
            uuid: from.array()?,
            group: from.array()?,
            group_name: from.text()?,
            made: from.number()?,
            blocks: from.number()?,
            sector: from.u32()?,
            thick: from.u8()? == 1,
        };
        if !matches!(about.sector, 512 | 4096) || about.blocks == 0 || about.blocks >= 1 << 47 {
            return Err(from.damaged("a volume's sizes are impossible"));
        }
        Ok(about)
    }
}

impl Table {
    pub fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.at);
        put_number(out, self.data_blocks);
        put_number(out, self.uploaded);
    }

    pub fn read(from: &mut From<'_>) -> Result<Table> {
        Ok(Table { at: from.number()?, data_blocks: from.number()?, uploaded: from.number()? })
    }
}

impl Say {
    fn code(&self) -> u16 {
        match self {
            Say::Begin { .. } => 1,
            Say::More { .. } => 2,
            // A program that does not know that a block is named must not take the job over.
            Say::TakeOver { from: None, .. } => 3,
            Say::TakeOver { from: Some(_), .. } => 8,
            Say::Commit { .. } => 4,
            Say::Abandon { .. } => 5,
            Say::Forget { .. } => 6,
            Say::Cleaned { .. } => 7,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Say::Begin { about, base, numbers } => {
                about.put(out);
                // Entry 0 is of no point.
                put_number(out, base.unwrap_or(0));
                put_numbers(out, numbers);
            }
            Say::More { job, numbers } => {
                put_number(out, *job);
                put_numbers(out, numbers);
            }
            Say::TakeOver { job, from, numbers } => {
                put_number(out, *job);
                from.iter().for_each(|from| put_number(out, *from));
                put_numbers(out, numbers);
            }
            Say::Commit { job, table } => {
                put_number(out, *job);
                table.put(out);
            }
            Say::Abandon { job } => put_number(out, *job),
            Say::Forget { points } => {
                put_number(out, points.len() as u64);
                points.iter().for_each(|point| put_number(out, *point));
            }
            Say::Cleaned { numbers } => put_numbers(out, numbers),
        }
    }

    fn read(code: u16, from: &mut From<'_>) -> Result<Say> {
        Ok(match code {
            1 => {
                let (about, base) = (About::read(from)?, from.number()?);
                Say::Begin { about, base: Some(base).filter(|base| *base > 0), numbers: numbers(from)? }
            }
            2 => Say::More { job: from.number()?, numbers: numbers(from)? },
            3 => Say::TakeOver { job: from.number()?, from: None, numbers: numbers(from)? },
            4 => Say::Commit { job: from.number()?, table: Table::read(from)? },
            5 => Say::Abandon { job: from.number()? },
            6 => {
                let count = from.count(1)?;
                Say::Forget { points: (0..count).map(|_| from.number()).collect::<Result<_>>()? }
            }
            7 => Say::Cleaned { numbers: numbers(from)? },
            8 => Say::TakeOver { job: from.number()?, from: Some(block(from)?), numbers: numbers(from)? },
            _ => return Err(StoreError::Newer(format!("an entry of kind {code}, which this program does not know"))),
        })
    }
}

impl Entry {
    pub fn encode(&self, seal: &Seal) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(self.say.code().to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.before);
        out.extend(self.writer);
        out.extend(self.time.to_le_bytes());
        self.say.put(&mut out);
        seal.sealed(&entry_name(self.number), out)
    }

    pub fn decode(seal: &Seal, number: u64, bytes: &[u8]) -> Result<Entry> {
        let name = entry_name(number);
        let body = seal.opened(&name, bytes)?;
        let mut from = From::new(&name, body);
        if from.array::<4>()? != MAGIC {
            return Err(from.damaged("it is no entry of a log"));
        }
        let version = from.u16()?;
        if version != VERSION {
            return Err(StoreError::Newer(format!("an entry of version {version}")));
        }
        let code = from.u16()?;
        if from.u64()? != number {
            return Err(from.damaged("it has another number"));
        }
        let (before, writer, time) = (from.array()?, from.array()?, from.u64()?);
        let say = Say::read(code, &mut from)?;
        from.end()?;
        Ok(Entry { number, before, writer, time, say })
    }
}

/// What the next entry names.
pub fn hash_of(entry: &[u8]) -> [u8; 32] {
    *blake3::hash(entry).as_bytes()
}
