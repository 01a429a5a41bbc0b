//! Release and image family of the data of an object.

use super::Status;
use crate::image::Family;
use crate::release::{Release, Runtime};
use crate::service::Invalid;

impl Status {
    /// Whether the object has data that images of another release or family could destroy.
    fn holds_data(&self) -> bool {
        self.served || self.installed.is_some() || !self.memory.is_empty()
    }

    /// Release that wrote the data of the object. Operators that recorded none knew only the oldest one.
    pub fn data_release(&self) -> Option<Release> {
        self.holds_data().then(|| self.release.unwrap_or(Release::OLDEST))
    }

    /// Rejects images that cannot take over the data of the object.
    pub fn check_runtime(&self, runtime: Runtime) -> Result<(), Invalid> {
        self.check_family(runtime.family)?;
        let refusal = self.data_release().and_then(|known| known.refusal(runtime.release));
        refusal.map_or(Ok(()), |reason| Err(Invalid::new("spec.release", reason)))
    }

    /// Rejects images of another family than those that wrote the data of the object. Versions of databases and message
    /// buses differ between families, and a rollout does not convert data.
    fn check_family(&self, family: Family) -> Result<(), Invalid> {
        match self.family {
            Some(known) if self.holds_data() && known != family => {
                let (known, wanted) = (known.name(), family.name());
                let reason = format!(
                    "images of family {known} wrote the data of this object, and images of family {wanted} cannot take it \
                     over: set it to {known}, or the operator's default (--images-family). To change the family, deploy a \
                     second cloud with family {wanted} and move users and workloads there"
                );
                Err(Invalid::new("spec.images.family", reason))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Runtime = Runtime { release: Release::Epoxy, family: Family::Kolla };
    const NEW: Runtime = Runtime { release: Release::Gazpacho, family: Family::Kolla };

    fn status(release: Option<Release>) -> Status {
        Status { served: true, release, family: Some(Family::Kolla), ..Status::default() }
    }

    #[test]
    fn data_moves_to_the_next_release_and_not_back() {
        assert_eq!(status(Some(OLD.release)).check_runtime(NEW), Ok(()));
        let invalid = status(Some(NEW.release)).check_runtime(OLD).unwrap_err();
        assert_eq!(invalid.path, "spec.release");
        assert!(invalid.reason.contains("set it to 2026.1"), "{invalid}");
    }

    #[test]
    fn an_object_without_data_can_have_any_release() {
        let status = Status { served: false, ..status(Some(NEW.release)) };
        assert_eq!(status.check_runtime(OLD), Ok(()));
        assert_eq!(status.data_release(), None);
    }

    #[test]
    fn data_of_an_operator_that_recorded_no_release_is_of_the_oldest() {
        assert_eq!(status(None).data_release(), Some(Release::Epoxy));
    }

    #[test]
    fn the_family_is_checked_in_every_release() {
        let debian = Runtime { family: Family::Debian, ..NEW };
        assert_eq!(status(Some(OLD.release)).check_runtime(debian).unwrap_err().path, "spec.images.family");
    }
}
