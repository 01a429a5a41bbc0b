//! The certificate authority of the cluster, its certificates and the kubeconfig files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::settings::{Addresses, MOST_NODES, Node};
use crate::directories::Directories;

/// Users of the API: file name, common name and organization.
const USERS: [(&str, &str, &str); 5] = [
    ("admin", "admin", "system:masters"),
    ("apiserver-kubelet-client", "apiserver-kubelet-client", "system:masters"),
    ("controller-manager", "system:kube-controller-manager", ""),
    ("scheduler", "system:kube-scheduler", ""),
    ("proxy", "system:kube-proxy", ""),
];

pub(crate) fn directory(directories: &Directories) -> PathBuf {
    directories.cluster().join("pki")
}

pub(crate) fn admin_kubeconfig(directories: &Directories) -> PathBuf {
    directories.cluster().join("kubeconfig")
}

/// Generates all keys and certificates at once, for all possible nodes, so that a new node changes nothing. They
/// appear by a rename, all or none.
pub(crate) fn ensure(directories: &Directories, addresses: &Addresses) -> Result<()> {
    let directory = directory(directories);
    if !directory.exists() {
        let unfinished = directory.with_extension("unfinished");
        crate::store::remove(&unfinished)?;
        fs::create_dir_all(&unfinished)
            .with_context(|| format!("failed to create {}", unfinished.display()))?;
        generate(&unfinished, addresses)?;
        fs::rename(&unfinished, &directory)
            .with_context(|| format!("failed to move {} into place", directory.display()))?;
    }
    for (user, _, _) in USERS {
        let text = kubeconfig(addresses, &directory, user);
        let path = directory.join(format!("{user}.kubeconfig"));
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    }
    fs::copy(directory.join("admin.kubeconfig"), admin_kubeconfig(directories))
        .context("failed to write the kubeconfig")?;
    Ok(())
}

/// A kubeconfig with the certificates in `pki`, a path of the process that reads it.
pub(crate) fn kubeconfig(addresses: &Addresses, pki: &Path, user: &str) -> String {
    let pki = pki.display();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: openstack-operator\n\
         contexts:\n- name: openstack-operator\n  context: {{cluster: local, user: {user}}}\n\
         clusters:\n- name: local\n  cluster:\n    server: {}\n    certificate-authority: {pki}/ca.crt\n\
         users:\n- name: {user}\n  user:\n    client-certificate: {pki}/{user}.crt\n    \
         client-key: {pki}/{user}.key\n",
        addresses.api_server()
    )
}

fn generate(directory: &Path, addresses: &Addresses) -> Result<()> {
    let authority = authority(directory)?;
    let host = addresses.host_address().to_string();
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        &host,
        &addresses.kubernetes_service().to_string(),
    ];
    leaf(directory, &authority, "apiserver", "kube-apiserver", "", &names)?;
    leaf(directory, &authority, "etcd", "etcd", "", &["localhost", "127.0.0.1"])?;
    let domain = &addresses.domain;
    leaf(directory, &authority, "gateway", domain, "", &[domain, &format!("*.{domain}")])?;
    for (file, name, organization) in USERS {
        leaf(directory, &authority, file, name, organization, &[])?;
    }
    for number in 1..=MOST_NODES {
        let node = Node::numbered(addresses, number);
        let name = format!("system:node:{}", node.name);
        let address = node.address.to_string();
        leaf(directory, &authority, &node.name, &name, "system:nodes", &[&node.name, &address])?;
    }
    // The key that signs tokens of service accounts; it has no certificate.
    let key = KeyPair::generate()?;
    write(&directory.join("service-account.pub"), &key.public_key_pem())?;
    write(&directory.join("service-account.key"), &key.serialize_pem())
}

fn authority(directory: &Path) -> Result<Issuer<'static, KeyPair>> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, "openstack-operator local cluster");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let certificate = parameters.self_signed(&key)?;
    write(&directory.join("ca.crt"), &certificate.pem())?;
    write(&directory.join("ca.key"), &key.serialize_pem())?;
    Ok(Issuer::new(parameters, key))
}

fn leaf(
    directory: &Path,
    authority: &Issuer<'_, KeyPair>,
    file: &str,
    name: &str,
    organization: &str,
    alternatives: &[&str],
) -> Result<()> {
    let key = KeyPair::generate()?;
    let alternatives: Vec<String> = alternatives.iter().map(|&name| name.to_owned()).collect();
    let mut parameters = CertificateParams::new(alternatives)?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    if !organization.is_empty() {
        parameters.distinguished_name.push(DnType::OrganizationName, organization);
    }
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = parameters.signed_by(&key, authority)?;
    write(&directory.join(format!("{file}.crt")), &certificate.pem())?;
    write(&directory.join(format!("{file}.key")), &key.serialize_pem())
}

/// Only the owner may read the file: it may be a key.
fn write(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("failed to write {}", path.display()))
}
