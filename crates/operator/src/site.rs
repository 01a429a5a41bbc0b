//! Settings of an operator for all clouds: as flags, and as environment variables of its process.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::service::Site;
use snafu::{ResultExt, Snafu};

use crate::site::tags::{ReleaseTags, TagsError};

mod tags;

const FAMILY: &str = "OPENSTACK_OPERATOR_IMAGES_FAMILY";
const REGISTRY: &str = "OPENSTACK_OPERATOR_IMAGES_REGISTRY";
const TAG: &str = "OPENSTACK_OPERATOR_IMAGES_TAG";
const DOMAIN: &str = "OPENSTACK_OPERATOR_CLUSTER_DOMAIN";
const DEFAULT_DOMAIN: &str = "cluster.local";

/// Defaults of fields that objects do not set.
#[derive(Args, Clone, Debug)]
pub(crate) struct SiteArguments {
    /// Family of images.
    #[arg(long, env = FAMILY, value_enum, default_value = "kolla")]
    pub(crate) images_family: FamilyArgument,
    /// Registry and path before an image's name [default: the family's own].
    #[arg(long, env = REGISTRY, value_name = "PREFIX")]
    pub(crate) images_registry: Option<String>,
    /// Tag of the images of one release, e.g. 2025.1=2025.1-20261117; may be given once for each release [default: the
    /// family's own for the release].
    #[arg(long, env = TAG, value_name = "RELEASE=TAG")]
    pub(crate) images_tag: Vec<ReleaseTags>,
    /// Domain of the cluster's Services.
    #[arg(long, env = DOMAIN, value_name = "DOMAIN", default_value = DEFAULT_DOMAIN)]
    pub(crate) cluster_domain: String,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FamilyArgument {
    Kolla,
    Debian,
}

impl From<FamilyArgument> for Family {
    fn from(family: FamilyArgument) -> Self {
        match family {
            FamilyArgument::Kolla => Self::Kolla,
            FamilyArgument::Debian => Self::Debian,
        }
    }
}

impl SiteArguments {
    pub(crate) fn site(&self) -> Site {
        Site {
            images: ImageDefaults {
                family: self.images_family.into(),
                registry: given(self.images_registry.as_ref()),
                tags: ReleaseTags::merge(&self.images_tag).0,
            },
            cluster_domain: self.cluster_domain.clone(),
        }
    }

    /// Environment variables that set the same defaults.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let family = self.images_family.to_possible_value().map(|value| value.get_name().to_owned());
        [
            (FAMILY, family),
            (REGISTRY, given(self.images_registry.as_ref())),
            (TAG, given(Some(&ReleaseTags::merge(&self.images_tag).to_string()))),
            (DOMAIN, Some(self.cluster_domain.clone())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// An empty variable counts as unset.
fn given(value: Option<&String>) -> Option<String> {
    value.filter(|value| !value.is_empty()).cloned()
}

/// Overrides of the defaults that the operator in the cluster has.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SiteOverrides {
    /// Family of images [default: that of the cluster's operator].
    #[arg(long, value_enum)]
    images_family: Option<FamilyArgument>,
    /// Registry and path before an image's name [default: that of the cluster's operator].
    #[arg(long, value_name = "PREFIX")]
    images_registry: Option<String>,
    /// Tag of the images of one release, e.g. 2025.1=2025.1-20261117; may be given once for each release [default: that
    /// of the cluster's operator].
    #[arg(long, value_name = "RELEASE=TAG")]
    images_tag: Vec<ReleaseTags>,
    /// Domain of the cluster's Services [default: that of the cluster's operator].
    #[arg(long, value_name = "DOMAIN")]
    cluster_domain: Option<String>,
}

#[derive(Debug, Snafu)]
#[snafu(display("cannot use the defaults of the operator in the cluster: its variable {TAG} is {value:?}"))]
pub(crate) struct Error {
    value: String,
    source: TagsError,
}

impl SiteOverrides {
    /// The flags, then the environment of the operator, then the built-in defaults.
    pub(crate) fn site(&self, environment: &BTreeMap<String, String>) -> Result<Site, Error> {
        let setting = |flag: &Option<String>, variable: &str| {
            given(flag.as_ref()).or_else(|| given(environment.get(variable)))
        };
        let family = environment.get(FAMILY).and_then(|name| FamilyArgument::from_str(name, true).ok());
        let value = environment.get(TAG).cloned().unwrap_or_default();
        let mut tags: ReleaseTags = value.parse().context(Snafu { value })?;
        tags.0.extend(ReleaseTags::merge(&self.images_tag).0);
        Ok(Site {
            images: ImageDefaults {
                family: self.images_family.or(family).unwrap_or(FamilyArgument::Kolla).into(),
                registry: setting(&self.images_registry, REGISTRY),
                tags: tags.0,
            },
            cluster_domain: setting(&self.cluster_domain, DOMAIN)
                .unwrap_or_else(|| DEFAULT_DOMAIN.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_model::release::Release;

    use super::*;

    fn environment(arguments: &SiteArguments) -> BTreeMap<String, String> {
        arguments.environment().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn a_flag_wins_over_the_environment_of_the_operator() {
        let arguments = SiteArguments {
            images_family: FamilyArgument::Debian,
            images_registry: Some("r/o".to_owned()),
            images_tag: vec!["2025.1=one".parse().unwrap()],
            cluster_domain: "c.test".to_owned(),
        };
        assert_eq!(environment(&arguments).len(), 4);
        assert_eq!(SiteOverrides::default().site(&environment(&arguments)).unwrap(), arguments.site());
        let flags =
            SiteOverrides { images_tag: vec!["2025.1=two".parse().unwrap()], ..SiteOverrides::default() };
        let site = flags.site(&environment(&arguments)).unwrap();
        assert_eq!(site.images.tags, BTreeMap::from([(Release::Epoxy, "two".to_owned())]));
        let arguments = SiteArguments { images_tag: vec!["".parse().unwrap()], ..arguments };
        assert_eq!(environment(&arguments).len(), 3);
    }

    #[test]
    fn an_unknown_operator_has_the_built_in_defaults() {
        let site = SiteOverrides::default().site(&BTreeMap::new()).unwrap();
        assert_eq!(
            site.images,
            ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() }
        );
        assert_eq!(site.cluster_domain, "cluster.local");
    }

    #[test]
    fn a_tag_without_a_release_in_the_environment_is_rejected() {
        let environment = BTreeMap::from([(TAG.to_owned(), "2025.1".to_owned())]);
        let error = SiteOverrides::default().site(&environment).unwrap_err();
        assert!(error.to_string().ends_with("OPENSTACK_OPERATOR_IMAGES_TAG is \"2025.1\""), "{error}");
    }
}
