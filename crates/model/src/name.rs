//! Names of objects within the length limits of Kubernetes.

use sha2::{Digest, Sha256};

/// Maximum length of the name of a Service, a Job or a pod of a StatefulSet.
pub const LONGEST: usize = 63;
/// Maximum length of the name of an object with workloads: its children add up to 22 characters.
pub const LONGEST_INSTANCE: usize = 40;
/// Maximum length of the name of an object whose children have workloads.
pub const LONGEST_PARENT: usize = 26;

/// Name of a part of an instance, e.g. `cloud-keystone-db-sync`. A name that is too long is truncated and made unique
/// by a hash.
pub fn part(instance: &str, part: &str) -> String {
    shorten(&format!("{instance}-{part}"), LONGEST)
}

/// Name of a part, or of the instance if the part has no name.
pub fn optional_part(instance: &str, name: Option<&str>) -> String {
    name.map_or_else(|| instance.to_owned(), |name| part(instance, name))
}

/// A name of at most so many characters. A longer one is cut and made unique by a hash.
pub fn shorten(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let hash = hash(name);
    let kept: String = name.chars().take(longest - 1 - hash.len()).collect();
    format!("{}-{hash}", kept.trim_end_matches(['-', '.']))
}

/// Hash of a content in ten characters.
pub fn hash(content: impl AsRef<[u8]>) -> String {
    Sha256::digest(content).iter().take(5).fold(String::with_capacity(10), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}

/// A file name as part of an object name: `keystone.conf` becomes `keystone-conf`.
pub fn slug(text: &str) -> String {
    let plain: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    plain.trim_matches('-').to_owned()
}

/// A node name as part of an object name. A name with dots gets a hash, because `a.b` and `a-b` have the same slug.
pub fn node_part(node: &str) -> String {
    if node.contains('.') { format!("{}-{}", slug(node), hash(node)) } else { node.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_kept_and_long_names_are_truncated_and_unique() {
        assert_eq!(part("cloud-keystone", "db-sync"), "cloud-keystone-db-sync");
        let (first, second) = (part(&"a".repeat(70), "x"), part(&"a".repeat(70), "y"));
        assert_eq!(first.len(), LONGEST);
        assert_ne!(first, second);
    }

    #[test]
    fn hashes_differ_with_content() {
        assert_eq!(hash("a").len(), 10);
        assert_ne!(hash("a"), hash("b"));
    }
}
