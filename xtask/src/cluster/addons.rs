//! Add-ons of the cluster: DNS, storage and a Gateway.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, bail};

use super::settings::Settings;
use super::{node, pki};
use crate::command::Log;
use crate::directories::Directories;
use crate::golang::{self, Program};
use crate::images::Builder;
use crate::kubectl::Kubectl;

const DNS: &str = include_str!("../../manifests/dns.yaml");
const STORAGE: &str = include_str!("../../manifests/storage.yaml");
const GATEWAY: &str = include_str!("../../manifests/gateway.yaml");

/// The name and version of the image of a pinned program, without the registry.
fn image_name(directories: &Directories, program: Program) -> Result<String> {
    Ok(format!("local-cluster/{}:{}", program.name(), program.version(directories)?))
}

/// The reference of the image of a pinned program.
pub(crate) fn image(directories: &Directories, registry: &str, program: Program) -> Result<String> {
    Ok(format!("{registry}/{}", image_name(directories, program)?))
}

/// Builds the image of a program unless the registry has it.
pub(crate) fn build_image(builder: &Builder, program: Program, log: &Log) -> Result<String> {
    let directories = &builder.directories;
    let name = image_name(directories, program)?;
    if builder.has(&name) {
        return Ok("cached".to_owned());
    }
    let context = builder.context(program.name(), &directories.checkout.join("images/local-cluster"))?;
    fs::copy(program.directory(directories)?.join(program.name()), context.join("program"))
        .with_context(|| format!("failed to copy {}", program.name()))?;
    builder.build_other(&name, &context, log)?;
    Ok("built".to_owned())
}

pub(crate) fn ensure_dns(directories: &Directories, settings: &Settings, log: &Log) -> Result<String> {
    // The host may have no name server.
    let forward = if node::resolver().is_empty() { "" } else { "forward . /etc/resolv.conf" };
    let text = fill(directories, settings, DNS, &[("forward", forward)])?;
    apply(directories, "dns", &text, log)?;
    rollout(directories, "kube-system", "coredns", log)?;
    Ok(settings.addresses.dns_service().to_string())
}

pub(crate) fn ensure_storage(
    directories: &Directories,
    settings: &Settings,
    base: &str,
    log: &Log,
) -> Result<String> {
    let text = fill(directories, settings, STORAGE, &[("base", base)])?;
    apply(directories, "storage", &text, log)?;
    rollout(directories, "local-path-storage", "local-path-provisioner", log)?;
    Ok("local-path".to_owned())
}

/// The CRDs of the Gateway API, which need no node.
pub(crate) fn ensure_gateway_kinds(directories: &Directories, log: &Log) -> Result<String> {
    let part = golang::gateway_api_manifests(directories, log)?;
    let kubectl = Kubectl::local(directories)?;
    kubectl.apply(None, &part.path.join("manifests.yaml"), log)?;
    let kinds = ["crd/gateways.gateway.networking.k8s.io", "crd/httproutes.gateway.networking.k8s.io"];
    kubectl.wait_for("Established", None, &kinds, log)?;
    Ok("standard channel".to_owned())
}

pub(crate) fn ensure_gateway(directories: &Directories, settings: &Settings, log: &Log) -> Result<String> {
    let text = fill(directories, settings, GATEWAY, &[])?;
    apply(directories, "gateway", &text, log)?;
    apply(directories, "gateway-certificate", &certificate(directories)?, log)?;
    rollout(directories, "gateway-system", "traefik", log)?;
    let kubectl = Kubectl::local(directories)?;
    kubectl.wait_for("Programmed", Some("openstack"), &["gateway/openstack-gateway"], log)?;
    Ok(format!("{} for *.{}", settings.addresses.gateway_service(), settings.addresses.domain))
}

/// The Secret with the certificate of the https listener and the CA that clients must trust.
fn certificate(directories: &Directories) -> Result<String> {
    let mut text = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\n\
                    metadata: {name: openstack-gateway-tls, namespace: openstack}\nstringData:\n"
        .to_owned();
    for (key, file) in [("tls.crt", "gateway.crt"), ("tls.key", "gateway.key"), ("ca.crt", "ca.crt")] {
        let path = pki::directory(directories).join(file);
        let content =
            fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {key}: |\n    {}", content.trim_end().replace('\n', "\n    "));
    }
    Ok(text)
}

/// Fills in the placeholders of a manifest, and fails for one without a value.
fn fill(
    directories: &Directories,
    settings: &Settings,
    manifest: &str,
    more: &[(&str, &str)],
) -> Result<String> {
    let addresses = &settings.addresses;
    let registry = addresses.registry();
    let mut values = vec![
        ("domain", addresses.domain.clone()),
        ("dns_address", addresses.dns_service().to_string()),
        ("gateway_address", addresses.gateway_service().to_string()),
        // Add-ons outlive the loss of one of several nodes.
        ("replicas", settings.nodes.min(2).to_string()),
    ];
    for program in [Program::Coredns, Program::LocalPathProvisioner, Program::Traefik] {
        values.push((program.name(), image(directories, &registry, program)?));
    }
    values.extend(more.iter().map(|&(name, value)| (name, value.to_owned())));
    let mut text = manifest.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("{{{{{name}}}}}"), &value);
    }
    // `{{ .Name }}`, with spaces, is a template of CoreDNS.
    if let Some(rest) = text.split("{{").skip(1).find(|rest| !rest.starts_with(' ')) {
        bail!("a manifest has no value for {}", rest.lines().next().unwrap_or_default());
    }
    Ok(text)
}

fn apply(directories: &Directories, name: &str, text: &str, log: &Log) -> Result<()> {
    let path = directories.cluster().join("manifests").join(format!("{name}.yaml"));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    Kubectl::local(directories)?.apply(None, &path, log)
}

fn rollout(directories: &Directories, namespace: &str, deployment: &str, log: &Log) -> Result<()> {
    Kubectl::local(directories)?.wait_for_rollout(namespace, deployment, log)
}
