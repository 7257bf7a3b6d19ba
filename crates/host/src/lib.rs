//! Rowen on Linux: disks, exports, the server of a volume group and its keeper.

pub mod devices;
pub mod disks;
pub mod paths;
pub mod reactor;
