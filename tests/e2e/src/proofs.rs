//! Proofs that services work: Python programs, one per service, which a client of the cloud runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use openstack_operator_services::PARTS;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proofs");

/// A service and the program that proves that it works.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The service's field in the spec of a cloud.
    pub service: &'static str,
    pub program: String,
}

/// Image of the pod that runs most proofs.
pub const CLIENT: &str = "client";
/// Begins the line of a proof that runs in a pod of another image.
const RUNS_IN: &str = "# Runs in: ";

impl Proof {
    /// Image of the pod that runs the program.
    #[must_use]
    pub fn image(&self) -> &str {
        self.program.lines().find_map(|line| line.strip_prefix(RUNS_IN)).unwrap_or(CLIENT)
    }
}

/// Every proof, in the order of the list of services.
pub fn proofs() -> Result<Vec<Proof>> {
    let mut programs = read(Path::new(DIRECTORY))?;
    let services = PARTS.iter().map(|part| part.field());
    let found = services.filter_map(|service| Some(Proof { service, program: programs.remove(service)? }));
    let found = found.collect();
    if let Some(name) = programs.into_keys().next() {
        bail!("{DIRECTORY}/{name}.py proves no service: name it after one of the list of services");
    }
    Ok(found)
}

/// Programs by the names of their files.
fn read(directory: &Path) -> Result<BTreeMap<String, String>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("failed to read {}", directory.display()))?;
    let mut programs = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".py"));
        let name = name.with_context(|| format!("{} is not a .py file", path.display()))?;
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        programs.insert(name.to_owned(), text);
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use openstack_operator_services::cloud::Presence;

    use super::*;

    /// A service with an API has a public hostname.
    #[test]
    fn every_service_with_an_api_has_a_proof_and_every_proof_has_a_service() -> Result<()> {
        let has_api = |field: &str| field == "publicHostname";
        let expected: BTreeSet<&str> = PARTS
            .iter()
            .filter(|part| {
                part.block().properties.is_some_and(|fields| fields.keys().any(|field| has_api(field)))
            })
            .map(|part| part.field())
            .collect();
        let proven: BTreeSet<&str> = proofs()?.iter().map(|proof| proof.service).collect();
        assert!(expected.contains("keystone"), "{expected:?}");
        assert_eq!(proven, expected, "tests/e2e/proofs has one program per service with an API");
        Ok(())
    }

    #[test]
    fn a_proof_names_only_services_of_the_list() -> Result<()> {
        for Proof { service, program } in proofs()? {
            let named = program.lines().filter_map(|line| line.strip_prefix("# Also proves: "));
            for name in named.flat_map(|names| names.split(", ")) {
                assert!(PARTS.iter().any(|part| part.field() == name), "{service}: {name} is not a service");
            }
        }
        Ok(())
    }

    #[test]
    fn a_proof_runs_in_the_image_that_it_names() {
        let image = |program: &str| {
            let proof = Proof { service: "nova", program: program.to_owned() };
            proof.image().to_owned()
        };
        assert_eq!(image("\"\"\"Nova works.\"\"\"\n\n# Runs in: browser\n"), "browser");
        assert_eq!(image("import openstack\n"), CLIENT);
    }

    #[test]
    fn the_cloud_of_the_proofs_has_every_service() -> Result<()> {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/extended.yaml");
        let sample: serde_json::Value = serde_saphyr::from_str(&fs::read_to_string(sample)?)?;
        for part in PARTS.iter().filter(|part| part.presence() == Presence::OnRequest) {
            assert_eq!(sample["spec"][part.field()]["enabled"], true, "{}", part.field());
        }
        Ok(())
    }

    #[test]
    fn a_proof_states_its_subject_and_deletes_its_objects() -> Result<()> {
        for Proof { service, program } in proofs()? {
            assert!(program.starts_with("\"\"\""), "{service}: the first line states what is proven");
            assert!(program.contains("ExitStack"), "{service}: cleanup runs even if the proof fails");
        }
        Ok(())
    }
}
