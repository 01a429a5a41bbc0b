//! Claims: what an object owns on other servers, and what it may take over.

use std::collections::BTreeSet;
use std::fmt;

use openstack_operator_model::status::EffectKind;

/// Start of a text that names an owner, in fields that may also have text of users.
const MARK: &str = "openstack-operator: ";

/// The claim of an object to a resource on another server. The resource carries its owner, so that no other object
/// changes or removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Kind, namespace and name of the object, without its uid: an object that is restored or created again with its name
    /// still owns its resources.
    pub owner: String,
    pub adoption: Adoption,
}

/// Which existing resources of others an object may take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    Nothing,
    /// Resources without an owner.
    Unowned,
    /// Resources of any owner.
    Anything,
}

/// A resource as it is found on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    Absent,
    Unowned,
    Owned(&'a str),
}

/// A resource that a claim does not cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: EffectKind,
    pub name: String,
    /// None if the resource exists and carries no owner.
    pub owner: Option<String>,
}

impl Claim {
    /// Checks that the object may use a resource.
    pub fn admit(&self, kind: EffectKind, name: &str, found: Found<'_>) -> Result<(), Refusal> {
        let is_admitted = match found {
            Found::Absent => true,
            Found::Unowned => self.adoption != Adoption::Nothing,
            Found::Owned(owner) => owner == self.owner || self.adoption == Adoption::Anything,
        };
        if is_admitted {
            return Ok(());
        }
        let owner = match found {
            Found::Owned(owner) => Some(owner.to_owned()),
            Found::Absent | Found::Unowned => None,
        };
        Err(Refusal { kind, name: name.to_owned(), owner })
    }

    /// Whether the object may remove a resource. A resource of another object is not an error: nothing remains to do.
    pub fn may_remove(&self, kind: EffectKind, name: &str, found: Found<'_>) -> bool {
        self.admit(kind, name, found)
            .inspect_err(|refusal| tracing::info!(%refusal, "the resource stays"))
            .is_ok()
    }

    /// Text that marks a resource of the object.
    pub fn mark(&self) -> String {
        format!("{MARK}{}", self.owner)
    }
}

/// Objects that need a resource which several of them may share, as a text of the resource names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharers(BTreeSet<String>);

impl Sharers {
    /// None if no object has created the resource.
    pub fn read(text: Option<&str>) -> Option<Self> {
        let names = text?.strip_prefix(MARK)?.split(',').map(str::trim).filter(|name| !name.is_empty());
        Some(Self(names.map(str::to_owned).collect()))
    }

    /// Returns whether the object was not one of them.
    pub fn add(&mut self, owner: &str) -> bool {
        self.0.insert(owner.to_owned())
    }

    /// Returns whether the object was one of them.
    pub fn remove(&mut self, owner: &str) -> bool {
        self.0.remove(owner)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Text that names them.
    pub fn mark(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        format!("{MARK}{}", names.join(", "))
    }
}

impl<'a> Found<'a> {
    /// A resource whose owner is known from elsewhere. The owner may have claimed it without creating it yet.
    pub fn new<T>(resource: Option<&T>, owner: Option<&'a str>) -> Self {
        match (owner, resource) {
            (Some(owner), _) => Self::Owned(owner),
            (None, Some(_)) => Self::Unowned,
            (None, None) => Self::Absent,
        }
    }

    /// An existing resource with a text that may be a mark.
    pub fn marked(text: Option<&'a str>) -> Self {
        text.and_then(|text| text.strip_prefix(MARK)).map_or(Self::Unowned, Self::Owned)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} ", self.kind.title(), self.name)?;
        match &self.owner {
            Some(owner) => write!(formatter, "belongs to {owner}"),
            None => write!(formatter, "exists and belongs to no object"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_covers_new_and_own_resources_and_others_only_if_it_may_adopt_them() {
        let own = "Thing openstack/mine";
        for (adoption, unowned, foreign) in [
            (Adoption::Nothing, false, false),
            (Adoption::Unowned, true, false),
            (Adoption::Anything, true, true),
        ] {
            let claim = Claim { owner: own.to_owned(), adoption };
            let mark = claim.mark();
            let admits = |found| claim.admit(EffectKind::Database, "x", found).is_ok();
            assert!(admits(Found::Absent) && admits(Found::marked(Some(&mark))), "{adoption:?}");
            assert_eq!(admits(Found::marked(Some("written by a user"))), unowned, "{adoption:?}");
            assert_eq!(admits(Found::Owned("Thing openstack/other")), foreign, "{adoption:?}");
        }
    }

    #[test]
    fn sharers_survive_their_text_and_leave_one_by_one() {
        assert_eq!(Sharers::read(None), None);
        assert_eq!(Sharers::read(Some("written by a user")), None);
        let mut sharers = Sharers::default();
        assert!(sharers.add("Thing n/b") && sharers.add("Thing n/a") && !sharers.add("Thing n/b"));
        assert_eq!(sharers.mark(), "openstack-operator: Thing n/a, Thing n/b");
        let mut read = Sharers::read(Some(&sharers.mark())).unwrap();
        assert_eq!(read, sharers);
        assert!(read.remove("Thing n/a") && !read.remove("Thing n/a") && !read.is_empty());
        assert!(read.remove("Thing n/b") && read.is_empty());
        assert_eq!(Sharers::read(Some(&read.mark())), Some(read));
    }

    #[test]
    fn a_refusal_names_the_resource_and_its_owner() {
        let claim = Claim { owner: "Thing n/a".to_owned(), adoption: Adoption::Nothing };
        let refusal =
            |found| claim.admit(EffectKind::MessagingHost, "x", found).err().map(|one| one.to_string());
        let expected = Some("virtual host x belongs to Thing n/b".to_owned());
        assert_eq!(refusal(Found::new(None::<&()>, Some("Thing n/b"))), expected);
        let expected = Some("virtual host x exists and belongs to no object".to_owned());
        assert_eq!(refusal(Found::new(Some(&()), None)), expected);
    }
}
