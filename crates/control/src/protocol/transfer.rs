//! What is sent and received: the bytes of a point, and volumes that are not whole yet.

use super::attributes::{HexUuid, hex};
use rowen_engine::units::{BLOCK_SIZE, Uuid};
use serde::{Deserialize, Serialize};

/// Blocks that one request reads or writes, at most.
pub const MOST_BLOCKS: u64 = (4 << 20) / BLOCK_SIZE;

/// Blocks with what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRange {
    pub start_block: u64,
    pub blocks: u64,
}

/// A mark of a stream: all of earlier volumes was sent, and all before a block of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    #[serde(with = "hex")]
    pub stream: Uuid,
    pub volume: u32,
    pub block: u64,
    /// The hash of all frames before it.
    pub hash: [u8; 32],
}

/// What is to be received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    #[serde(with = "hex")]
    pub stream: Uuid,
    /// The mark of another stream with which this one goes on.
    pub continues: Option<Mark>,
    /// What the sender calls its group.
    pub group: String,
    pub volumes: Vec<ReceiveVolume>,
    /// The run of the command. A later run takes over, and the earlier one is refused.
    #[serde(with = "hex")]
    pub attempt: Uuid,
    /// Seconds since 1970.
    pub created: u64,
}

/// A volume that is to be received, or what changed of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveVolume {
    /// The volume that gets the contents, and the snapshot that is made of it.
    pub target: String,
    pub snapshot: String,
    /// What the sender calls the snapshot.
    pub source: String,
    /// The identity of the contents.
    #[serde(with = "hex")]
    pub point: Uuid,
    pub blocks: u64,
    pub sector: u32,
    /// Blocks with data that come, if that is known.
    pub changed: Option<u64>,
    /// A new volume takes its space when it is made.
    pub thick: bool,
    /// What the stream's changes are changes of; none: it has everything.
    pub base: Option<Base>,
    /// Identifier of the volume that has the contents until they are whole.
    #[serde(with = "hex")]
    pub uuid: Uuid,
}

/// The contents that changes are changes of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    #[serde(with = "hex")]
    pub point: Uuid,
    /// What the sender calls it.
    pub name: String,
}

/// How far a receive is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receiving {
    /// These many frames of the stream are here already.
    From { frames: u64 },
    /// The group has all of it: as these snapshots.
    IsHere { snapshots: Vec<String> },
}

/// A run of a command that receives a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    #[serde(with = "hex")]
    pub stream: Uuid,
    #[serde(with = "hex")]
    pub attempt: Uuid,
}

/// A part of what is received: of the volume that has this number in the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Ranges in order; the bytes of all of them.
    Data {
        volume: u32,
        ranges: Vec<BlockRange>,
        bytes: Bytes,
    },
    Zeros {
        volume: u32,
        range: BlockRange,
    },
}

impl Part {
    /// Its bytes of data.
    pub(super) fn len(&self) -> usize {
        match self {
            Part::Data { bytes, .. } => bytes.0.len(),
            Part::Zeros { .. } => 0,
        }
    }
}

/// A receive that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// What the sender calls its group.
    pub group: String,
    /// The last mark that is here; none: it begins at the beginning again.
    pub mark: Option<Mark>,
    pub created: u64,
    /// In the order of the stream.
    pub volumes: Vec<UnfinishedVolume>,
}

/// A volume that is being received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedVolume {
    pub target: String,
    pub snapshot: String,
    /// What the sender calls the snapshot.
    pub source: String,
    /// None: the whole volume is received.
    pub base: Option<Base>,
    pub point: HexUuid,
    pub blocks: u64,
    /// Blocks that it holds.
    pub held_blocks: u64,
}

/// Bytes as such, and not as a list of numbers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Bytes;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("bytes")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Bytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = items.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }
        from.deserialize_bytes(Visitor)
    }
}
