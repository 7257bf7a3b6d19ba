//! What the last runs did, for `rowen backup status`. A lost or damaged file costs only its own contents.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The last attempt to bring a target up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attempt {
    /// Seconds since 1970: when it was last up to date, and when an attempt failed after that.
    pub arrived: Option<u64>,
    pub failed: Option<u64>,
    /// The last snapshot that arrived.
    pub snapshot: Option<String>,
    /// Why it failed.
    pub why: Option<String>,
}

/// By policy, volume and target: `POLICY VG/LV TARGET`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub attempts: BTreeMap<String, Attempt>,
}

impl State {
    pub fn key(policy: &str, volume: &str, target: &str) -> String {
        format!("{policy} {volume} {target}")
    }

    /// What a file has; nothing, if it has none that can be read.
    pub fn read(text: &str) -> State {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn write(&self) -> String {
        serde_json::to_string_pretty(self).expect("it is made of texts and numbers") + "\n"
    }
}
