//! Names of objects: what they are made of, and how they stay within what Kubernetes accepts.

use sha2::{Digest, Sha256};

/// The longest name that a Service, a Job's pod label or a StatefulSet's pod can carry.
pub const LONGEST: usize = 63;
/// The longest name of an object that has workloads: its children add up to 22 characters. The schema refuses more.
pub const LONGEST_INSTANCE: usize = 40;
/// The longest name of an object that has children with workloads.
pub const LONGEST_PARENT: usize = 26;

/// The name of a part of an instance, e.g. `cloud-keystone-db-sync`. What would be too long is cut and made unique
/// by a hash, so that a name is always valid.
pub fn part(instance: &str, part: &str) -> String {
    fitted(&format!("{instance}-{part}"))
}

/// The name of a part, or of the instance itself where the part has no name of its own.
pub fn optional_part(instance: &str, name: Option<&str>) -> String {
    name.map_or_else(|| instance.to_owned(), |name| part(instance, name))
}

fn fitted(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let hash = hash(name);
    let kept: String = name.chars().take(LONGEST - 1 - hash.len()).collect();
    format!("{}-{hash}", kept.trim_end_matches(['-', '.']))
}

/// Ten characters that stand for a content.
pub fn hash(content: impl AsRef<[u8]>) -> String {
    Sha256::digest(content).iter().take(5).fold(String::with_capacity(10), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}

/// A file's name as part of an object's name: `keystone.conf` becomes `keystone-conf`.
pub fn slug(text: &str) -> String {
    let plain: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    plain.trim_matches('-').to_owned()
}

/// A node's name as part of an object's name. One with dots is made unique by a hash, since nothing else tells its dots
/// from another's dashes.
pub fn node_part(node: &str) -> String {
    if node.contains('.') { format!("{}-{}", slug(node), hash(node)) } else { node.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_kept_and_long_ones_cut_and_made_unique() {
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
