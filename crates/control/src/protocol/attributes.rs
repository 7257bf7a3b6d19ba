//! The attributes of a group and of its volumes, and changes of them. Requests and reports share these types.

use rowen_engine::group as engine;
use rowen_engine::units::BLOCK_SIZE;
use serde::{Deserialize, Serialize};

/// Allocated whole at creation, or on write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeKind {
    Thick,
    Thin,
}

/// What a write does when the group is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FullPolicy {
    DropSnapshot,
    Hold,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    Ok,
    Invalid,
}

/// How the blocks lie on physical volumes: each on one, each on two (a mirror), or in turn on several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentType {
    #[default]
    Linear,
    Raid1,
    Striped,
}

/// How the blocks of striped volumes alternate between physical volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stripes {
    /// On how many they are.
    pub columns: u8,
    /// The blocks that follow each other on one: a power of two.
    pub blocks: u32,
}

impl Stripes {
    /// The bytes that follow each other on one.
    pub fn bytes(self) -> u64 {
        u64::from(self.blocks) * BLOCK_SIZE
    }
}

impl From<engine::StripeLayout> for Stripes {
    fn from(layout: engine::StripeLayout) -> Self {
        Stripes { columns: layout.columns, blocks: u32::try_from(layout.blocks()).unwrap_or(u32::MAX) }
    }
}

impl From<Stripes> for engine::StripeLayout {
    /// Of blocks that are no power of two, a layout that no group can have.
    fn from(stripes: Stripes) -> Self {
        let shift = if stripes.blocks.is_power_of_two() { stripes.blocks.trailing_zeros() as u8 } else { u8::MAX };
        engine::StripeLayout { columns: stripes.columns, shift }
    }
}

macro_rules! mirror {
    ($name:ident { $($variant:ident),* }) => {
        impl From<engine::$name> for $name {
            fn from(value: engine::$name) -> Self {
                match value { $(engine::$name::$variant => $name::$variant),* }
            }
        }
        impl From<$name> for engine::$name {
            fn from(value: $name) -> Self {
                match value { $($name::$variant => engine::$name::$variant),* }
            }
        }
    };
}
mirror!(VolumeKind { Thick, Thin });
mirror!(SegmentType { Linear, Raid1, Striped });
mirror!(FullPolicy { DropSnapshot, Hold, Fail });
mirror!(VolumeState { Ok, Invalid });
mirror!(AllocPolicy { Normal, Contiguous, Cling, Anywhere });

/// LVM's allocation policy: stored and shown only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocPolicy {
    #[default]
    Normal,
    Contiguous,
    Cling,
    Anywhere,
}

/// The attributes of a group that the commands use. The tags of physical volumes are with the physical volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAttributes {
    pub autoactivate: bool,
    /// Nothing may be activated.
    pub exported: bool,
    pub resizeable: bool,
    pub alloc: AllocPolicy,
    /// Most volumes and physical volumes; 0: no limit.
    pub max_volumes: u64,
    pub max_pvs: u64,
    pub tags: Vec<String>,
}

impl Default for GroupAttributes {
    fn default() -> Self {
        engine::GroupAttributes::default().into()
    }
}

impl From<engine::GroupAttributes> for GroupAttributes {
    fn from(a: engine::GroupAttributes) -> Self {
        let engine::GroupAttributes { autoactivate, exported, resizeable, alloc, max_volumes, max_pvs, tags, .. } = a;
        GroupAttributes { autoactivate, exported, resizeable, alloc: alloc.into(), max_volumes, max_pvs, tags }
    }
}

/// A change of a group's attributes: `None` changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupChange {
    pub autoactivate: Option<bool>,
    pub exported: Option<bool>,
    pub resizeable: Option<bool>,
    pub alloc: Option<AllocPolicy>,
    pub max_volumes: Option<u64>,
    pub max_pvs: Option<u64>,
    pub add_tags: Vec<String>,
    pub remove_tags: Vec<String>,
}

impl GroupChange {
    /// The attributes after the change.
    pub fn apply(&self, to: &engine::GroupAttributes) -> engine::GroupAttributes {
        let mut after = to.clone();
        after.autoactivate = self.autoactivate.unwrap_or(after.autoactivate);
        after.exported = self.exported.unwrap_or(after.exported);
        after.resizeable = self.resizeable.unwrap_or(after.resizeable);
        after.alloc = self.alloc.map_or(after.alloc, engine::AllocPolicy::from);
        after.max_volumes = self.max_volumes.unwrap_or(after.max_volumes);
        after.max_pvs = self.max_pvs.unwrap_or(after.max_pvs);
        change_tags(&mut after.tags, &self.add_tags, &self.remove_tags);
        after
    }
}

/// Adding an existing tag, or removing a missing one, changes nothing.
pub fn change_tags(tags: &mut Vec<String>, add: &[String], remove: &[String]) {
    for tag in add {
        if !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
    tags.retain(|tag| !remove.contains(tag));
}

/// The attributes of a volume that the commands use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub autoactivate: bool,
    pub skip_activation: bool,
    pub active: bool,
    /// Seconds since 1970.
    pub created: u64,
    /// The thin pool of the volume. A volume that names itself *is* a pool (see [`VolumeReport::is_pool`]).
    pub pool: String,
    pub tags: Vec<String>,
    /// A snapshot that will be merged when its origin is next activated.
    #[serde(default)]
    pub merging: bool,
}

impl From<engine::Attributes> for Attributes {
    fn from(a: engine::Attributes) -> Self {
        let engine::Attributes { autoactivate, skip_activation, active, created, pool, tags, merging } = a;
        Attributes { autoactivate, skip_activation, active, created, pool, tags, merging }
    }
}

impl From<Attributes> for engine::Attributes {
    fn from(a: Attributes) -> Self {
        let Attributes { autoactivate, skip_activation, active, created, pool, tags, merging } = a;
        engine::Attributes { autoactivate, skip_activation, active, created, pool, tags, merging }
    }
}

/// A change of attributes: `None` changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttributeChange {
    pub autoactivate: Option<bool>,
    pub skip_activation: Option<bool>,
    pub add_tags: Vec<String>,
    pub remove_tags: Vec<String>,
    pub pool: Option<String>,
}

impl AttributeChange {
    /// The attributes after the change.
    pub fn apply(&self, to: &engine::Attributes) -> engine::Attributes {
        let mut after = to.clone();
        after.autoactivate = self.autoactivate.unwrap_or(after.autoactivate);
        after.skip_activation = self.skip_activation.unwrap_or(after.skip_activation);
        if let Some(pool) = &self.pool {
            after.pool.clone_from(pool);
        }
        change_tags(&mut after.tags, &self.add_tags, &self.remove_tags);
        after
    }
}

/// An identifier in an option or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HexUuid(#[serde(with = "hex")] pub rowen_engine::units::Uuid);

/// Identifiers as 32 hexadecimal digits, and as 16 bytes in the compact form.
pub(super) mod hex {
    use rowen_engine::units::Uuid;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(uuid: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(uuid) } else { serde::Serialize::serialize(&uuid.0, to) }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
        if !from.is_human_readable() {
            return <[u8; 16]>::deserialize(from).map(Uuid);
        }
        let text = String::deserialize(from)?;
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(&text, 16) {
            Ok(number) if is_hex => Ok(Uuid(number.to_be_bytes())),
            _ => Err(serde::de::Error::custom("an identifier must be 32 hexadecimal digits")),
        }
    }
}
