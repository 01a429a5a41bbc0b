//! The file `clouds.yaml` of the OpenStack clients: adds one cloud and keeps the others.

use serde_json::{Value, json};
use snafu::{OptionExt, ResultExt, Snafu};

use crate::yaml::yaml;

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(display("the file is not valid YAML"))]
    Parse {
        #[snafu(source(from(serde_saphyr::Error, Box::new)))]
        source: Box<serde_saphyr::Error>,
    },
    #[snafu(display("the file is not a clouds.yaml: its field clouds is not a mapping"))]
    Shape,
}

/// The text of a file with this cloud and everything that the existing text holds.
pub(crate) fn merge(existing: &str, name: &str, cloud: &Value) -> Result<String, Error> {
    let mut merged = match existing.trim() {
        "" => json!({}),
        _ => serde_saphyr::from_str::<Value>(existing).context(ParseSnafu)?,
    };
    if merged.is_null() {
        merged = json!({});
    }
    let file = merged.as_object_mut().context(ShapeSnafu)?;
    let clouds = file.entry("clouds").or_insert_with(|| json!({}));
    if clouds.is_null() {
        *clouds = json!({});
    }
    clouds.as_object_mut().context(ShapeSnafu)?.insert(name.to_owned(), cloud.clone());
    // Keeps comments and order of the other clouds if the result has the same meaning.
    let kept = splice(existing, name, cloud)
        .filter(|text| serde_saphyr::from_str::<Value>(text).is_ok_and(|same| same == merged));
    Ok(kept.unwrap_or_else(|| yaml(&merged)))
}

/// Replaces the lines of one cloud, or adds them after the others.
fn splice(existing: &str, name: &str, cloud: &Value) -> Option<String> {
    let mut lines: Vec<String> = existing.lines().map(str::to_owned).collect();
    let top = lines.iter().position(|line| line.trim_end() == "clouds:")?;
    let depth = |line: &str| line.len() - line.trim_start().len();
    let is_content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let first = lines[top + 1..].iter().find(|line| is_content(line))?;
    let indent = depth(first);
    if indent == 0 {
        return None;
    }
    let section_end = end(&lines, top + 1, |line| is_content(line) && depth(line) >= indent, &is_content);
    let heads = (top + 1..section_end)
        .find(|&index| depth(&lines[index]) == indent && lines[index].trim() == format!("{name}:"));
    let range = match heads {
        Some(head) => {
            head..end(&lines, head + 1, |line| is_content(line) && depth(line) > indent, &is_content)
        }
        None => section_end..section_end,
    };
    let block = yaml(&json!({ name: cloud }));
    let block: Vec<String> = block.lines().map(|line| format!("{}{line}", " ".repeat(indent))).collect();
    lines.splice(range, block);
    Some(format!("{}\n", lines.join("\n")))
}

/// The line after the last one of the block that starts before `start`.
fn end(
    lines: &[String],
    start: usize,
    belongs: impl Fn(&str) -> bool,
    is_content: &impl Fn(&str) -> bool,
) -> usize {
    let rest = lines.iter().enumerate().skip(start).filter(|(_, line)| is_content(line));
    rest.take_while(|(_, line)| belongs(line)).last().map_or(start, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud(url: &str) -> Value {
        json!({ "auth": { "auth_url": url } })
    }

    #[test]
    fn a_new_file_has_the_cloud() {
        assert_eq!(merge("", "a", &cloud("u")).unwrap(), "clouds:\n  a:\n    auth:\n      auth_url: u\n");
    }

    #[test]
    fn other_clouds_and_comments_stay() {
        let existing = "# mine\nclouds:\n    # the old one\n    old:\n        auth: {auth_url: o}\n\n    a:\n        auth:\n            auth_url: x\n        more: 1\n    # last\n    z: {}\ncache:\n  age: 5\n";
        let expected = "# mine\nclouds:\n    # the old one\n    old:\n        auth: {auth_url: o}\n\n    a:\n      auth:\n        auth_url: u\n    # last\n    z: {}\ncache:\n  age: 5\n";
        assert_eq!(merge(existing, "a", &cloud("u")).unwrap(), expected);
    }

    #[test]
    fn a_new_cloud_is_added_after_the_others() {
        let merged = merge("clouds:\n  old:\n    auth: {}\n# end\n", "a", &cloud("u")).unwrap();
        assert_eq!(merged, "clouds:\n  old:\n    auth: {}\n  a:\n    auth:\n      auth_url: u\n# end\n");
    }

    #[test]
    fn a_flow_mapping_is_rewritten_with_all_clouds() {
        let merged = merge("{clouds: {old: {auth: {}}}}", "a", &cloud("u")).unwrap();
        let value: Value = serde_saphyr::from_str(&merged).unwrap();
        assert_eq!(value, json!({ "clouds": { "old": { "auth": {} }, "a": cloud("u") } }));
    }

    #[test]
    fn a_file_that_is_not_a_clouds_yaml_is_rejected() {
        assert!(merge("- a\n", "a", &cloud("u")).is_err());
        assert!(merge("clouds: [a]\n", "a", &cloud("u")).is_err());
        assert!(merge("a: [\n", "a", &cloud("u")).is_err());
    }
}
