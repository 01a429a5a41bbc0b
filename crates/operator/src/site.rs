//! What holds for everything that one operator runs, as flags.

use clap::{Args, ValueEnum};
use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::service::Site;

/// Defaults where an object is silent.
#[derive(Args, Clone, Debug)]
pub(crate) struct SiteArguments {
    /// Family of images.
    #[arg(long, env = "OPENSTACK_OPERATOR_IMAGES_FAMILY", value_enum, default_value = "kolla")]
    pub(crate) images_family: FamilyArgument,
    /// Registry and path before an image's name [default: the family's own].
    #[arg(long, env = "OPENSTACK_OPERATOR_IMAGES_REGISTRY", value_name = "PREFIX")]
    pub(crate) images_registry: Option<String>,
    /// Tag of the images [default: the family's own for the release].
    #[arg(long, env = "OPENSTACK_OPERATOR_IMAGES_TAG", value_name = "TAG")]
    pub(crate) images_tag: Option<String>,
    /// Domain of the cluster's Services.
    #[arg(long, env = "OPENSTACK_OPERATOR_CLUSTER_DOMAIN", value_name = "DOMAIN", default_value = "cluster.local")]
    pub(crate) cluster_domain: String,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum FamilyArgument {
    Kolla,
    Debian,
}

impl SiteArguments {
    pub(crate) fn site(&self) -> Site {
        let family = match self.images_family {
            FamilyArgument::Kolla => Family::Kolla,
            FamilyArgument::Debian => Family::Debian,
        };
        // An empty variable is one that is not set.
        let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        Site {
            images: ImageDefaults {
                family,
                registry: given(&self.images_registry),
                tag: given(&self.images_tag),
            },
            cluster_domain: self.cluster_domain.clone(),
        }
    }
}
