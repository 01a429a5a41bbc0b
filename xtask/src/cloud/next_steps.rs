//! What a person types next, once the cloud is ready.

use std::fmt::Write as _;
use std::path::Path;

/// What the text depends on.
pub(super) struct NextSteps<'a> {
    pub(super) kubeconfig: &'a Path,
    /// How kubectl is called, where that is not by its name.
    pub(super) kubectl: Option<&'a str>,
    pub(super) clouds: &'a Path,
    pub(super) cloud: &'a str,
    pub(super) namespace: &'a str,
    pub(super) client_image: &'a str,
    /// The context of an existing cluster.
    pub(super) context: Option<&'a str>,
}

impl NextSteps<'_> {
    /// The commands, one on each line. The client runs as a pod: inside the cluster every name of the cloud
    /// resolves, which on the host it need not.
    pub(super) fn text(&self) -> String {
        let Self { cloud, namespace, client_image, .. } = self;
        let mut text = format!("export KUBECONFIG={}\n", self.kubeconfig.display());
        // Writing to a String cannot fail.
        if let Some(kubectl) = self.kubectl {
            let _ = writeln!(text, "alias kubectl='{kubectl}'");
        }
        let _ = write!(
            text,
            "export OS_CLIENT_CONFIG_FILE={}\n\
             kubectl --namespace {namespace} run client --image {client_image} --restart Never --rm --quiet \
             --stdin \\\n  --command -- sh -c 'cat > /tmp/clouds.yaml; \
             OS_CLIENT_CONFIG_FILE=/tmp/clouds.yaml openstack --os-cloud {cloud} token issue' \\\n  \
             < $OS_CLIENT_CONFIG_FILE\n\
             cargo xtask down",
            self.clouds.display()
        );
        if let Some(context) = self.context {
            let _ = write!(text, " --context '{context}'");
        }
        text
    }
}

/// The first cloud that a clouds.yaml names.
pub(super) fn first_cloud(clouds: &str) -> Option<&str> {
    let mut lines = clouds.lines().skip_while(|line| line.trim_end() != "clouds:").skip(1);
    let line = lines.find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))?;
    let name = line.strip_prefix(' ')?.trim().strip_suffix(':')?;
    Some(name.trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> NextSteps<'static> {
        NextSteps {
            kubeconfig: Path::new("/c/kubeconfig"),
            kubectl: None,
            clouds: Path::new("/c/clouds.yaml"),
            cloud: "minimal",
            namespace: "openstack",
            client_image: "r/client:1",
            context: None,
        }
    }

    #[test]
    fn a_local_cloud_is_used_and_removed() {
        let text = NextSteps { kubectl: Some("/s/kubernetes kubectl"), ..steps() }.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "export KUBECONFIG=/c/kubeconfig",
                "alias kubectl='/s/kubernetes kubectl'",
                "export OS_CLIENT_CONFIG_FILE=/c/clouds.yaml",
                "kubectl --namespace openstack run client --image r/client:1 --restart Never --rm --quiet \
                 --stdin \\",
                "  --command -- sh -c 'cat > /tmp/clouds.yaml; OS_CLIENT_CONFIG_FILE=/tmp/clouds.yaml \
                 openstack --os-cloud minimal token issue' \\",
                "  < $OS_CLIENT_CONFIG_FILE",
                "cargo xtask down",
            ]
        );
    }

    #[test]
    fn a_cloud_on_an_existing_cluster_is_removed_from_there() {
        let text = NextSteps { context: Some("a@b"), ..steps() }.text();
        assert!(text.ends_with("\ncargo xtask down --context 'a@b'") && !text.contains("alias"), "{text}");
    }

    #[test]
    fn the_first_cloud_is_found() {
        assert_eq!(first_cloud("# a\nclouds:\n  # b\n  minimal:\n    auth:\n      x: y\n"), Some("minimal"));
        assert_eq!(first_cloud("clouds:\n  \"my cloud\":\n"), Some("my cloud"));
        assert_eq!(first_cloud("cache: {}\n"), None);
        assert_eq!(first_cloud("clouds:\ncache:\n"), None);
    }
}
