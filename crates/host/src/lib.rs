//! Rowen on Linux: disks, exports, the server of a volume group and its keeper.

pub mod paths;
