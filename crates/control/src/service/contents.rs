//! Reverts: a volume gets the contents of another.

use super::failure::Result;
use super::state::Service;
use crate::protocol::{ErrorKind, Outcome};
use rowen_engine::group::VolumeInfo;

impl Service {
    /// Gives `target` the contents of `source`. Every snapshot stays.
    pub fn revert(&self, target: &str, source: &str) -> Result<Outcome> {
        let (target, source) = (self.find(target)?, self.find(source)?);
        self.refuse_held(std::slice::from_ref(&target), "reverted")?;
        self.replace_contents(target, source, false)
    }

    /// The kernel may hold pages of the old contents, so the devices are removed during the change.
    pub fn replace_contents(&self, target: VolumeInfo, source: VolumeInfo, consume: bool) -> Result<Outcome> {
        let mut touched = vec![target.clone()];
        if consume {
            touched.push(source.clone());
        }
        let off = self.switch_off_all(&touched).map_err(|mut failure| {
            if failure.kind == ErrorKind::InUse {
                failure
                    .message
                    .push_str("\nIts contents cannot be replaced while it is in use; unmount it and try again.");
            }
            failure
        })?;
        let (group, to, from) = (self.group.clone(), target.id, source.id);
        let done = self.run(async move { group.revert(to, from, consume).await });
        self.told(done, &source.name).map_err(|failure| self.switch_on_again(&off, failure))?;
        if off.iter().any(|volume| volume.id == target.id) {
            self.switch_on(&self.find(&target.name)?)?;
        }
        Ok(Outcome::Ok)
    }
}
