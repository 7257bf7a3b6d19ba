//! Failures of devices, disks and exports as errors of the control protocol.

use crate::{devices, disks, export};
use rowen_control::service::failure::Failure;
use rowen_control::service::platform::DeviceError;

impl From<devices::Error> for Failure {
    fn from(error: devices::Error) -> Failure {
        Failure { kind: error.kind(), message: error.to_string() }
    }
}

impl From<disks::OpenError> for Failure {
    fn from(error: disks::OpenError) -> Failure {
        devices::Error::from(error).into()
    }
}

impl From<export::Error> for Failure {
    fn from(error: export::Error) -> Failure {
        DeviceError::from(error).into()
    }
}
