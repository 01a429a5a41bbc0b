//! The commands that `up` prints when the cloud is ready.

use std::path::Path;

/// The name of the cloud in its clouds.yaml.
pub(super) const CLOUD: &str = "openstack";

pub(super) fn on_local_cluster(kubeconfig: &Path, kubectl: &str) -> String {
    format!(
        "cargo xtask launch                   # boot a VM\n\
         cargo xtask openstack server list    # any command of the OpenStack client\n\
         export KUBECONFIG={}\n\
         alias kubectl='{kubectl}'\n\
         cargo xtask down                     # remove the cloud and the cluster",
        kubeconfig.display()
    )
}

/// The public names of a cloud on an existing cluster resolve on this host, so its own client works.
pub(super) fn on_existing_cluster(context: &str, kubeconfig: &Path, clouds: &Path) -> String {
    format!(
        "export KUBECONFIG={}\n\
         export OS_CLIENT_CONFIG_FILE={} OS_CLOUD={CLOUD}\n\
         openstack server list\n\
         cargo xtask down --context '{context}'",
        kubeconfig.display(),
        clouds.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_cloud_is_used_with_commands_of_this_tool() {
        let text = on_local_cluster(Path::new("/c/kubeconfig"), "/s/kubernetes kubectl");
        let commands: Vec<&str> =
            text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).collect();
        assert_eq!(
            commands,
            [
                "cargo xtask launch",
                "cargo xtask openstack server list",
                "export KUBECONFIG=/c/kubeconfig",
                "alias kubectl='/s/kubernetes kubectl'",
                "cargo xtask down",
            ]
        );
    }

    #[test]
    fn a_cloud_on_an_existing_cluster_is_used_with_the_hosts_client() {
        let text = on_existing_cluster("a@b", Path::new("/c/kubeconfig"), Path::new("/c/clouds.yaml"));
        assert!(
            text.contains("\nexport OS_CLIENT_CONFIG_FILE=/c/clouds.yaml OS_CLOUD=openstack\n"),
            "{text}"
        );
        assert!(text.ends_with("\ncargo xtask down --context 'a@b'"), "{text}");
    }
}
