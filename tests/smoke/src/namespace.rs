//! A namespace for one test, deleted even if the test fails.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::config::{Config, KubeConfigOptions};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::RwLock;
use tokio_rustls::rustls::crypto::ring;

use crate::wait::{await_condition, await_deletion};
use crate::{Environment, report};

/// Label of every namespace of this suite: namespaces of an aborted run can be found and deleted.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "openstack-operator-smoke");
const NAMESPACE_START: Duration = Duration::from_mins(1);
const NAMESPACE_END: Duration = Duration::from_mins(10);

/// Tests share the cluster, except those that power off nodes.
static CLUSTER: RwLock<()> = RwLock::const_new(());

/// The Pod Security Standard that a namespace enforces.
#[derive(Clone, Copy, Debug)]
pub enum PodSecurity {
    Restricted,
    Privileged,
}

/// The namespace of one test and the clients to work in it.
#[derive(Clone)]
pub struct Sandbox {
    pub client: Client,
    pub environment: Environment,
    pub namespace: String,
    /// The namespace as an object: it owns the test's objects in other namespaces, so they are deleted with it.
    pub root: Namespace,
}

impl Sandbox {
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn create<K>(&self, object: &K) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
        K::DynamicType: Default,
    {
        let failure =
            || format!("failed to create {} {}", K::kind(&K::DynamicType::default()), object.name_any());
        self.api().create(&PostParams::default(), object).await.with_context(failure)
    }

    /// Runs a part of a test in a second namespace.
    pub async fn with_second_namespace(
        &self,
        topic: &str,
        security: PodSecurity,
        test: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        run(topic, security, test).await
    }

    pub fn image(&self, name: &str) -> Result<String> {
        self.environment.image(name)
    }
}

/// Runs a test in its own namespace, in parallel to other tests.
pub async fn with_namespace(
    topic: &str,
    security: PodSecurity,
    test: impl AsyncFnOnce(&Sandbox) -> Result<()>,
) -> Result<()> {
    let _shared = CLUSTER.read().await;
    run(topic, security, test).await
}

/// Runs a test in its own namespace while no other test runs.
pub async fn with_cluster_alone(
    topic: &str,
    security: PodSecurity,
    test: impl AsyncFnOnce(&Sandbox) -> Result<()>,
) -> Result<()> {
    let _alone = CLUSTER.write().await;
    run(topic, security, test).await
}

async fn run(
    topic: &str,
    security: PodSecurity,
    test: impl AsyncFnOnce(&Sandbox) -> Result<()>,
) -> Result<()> {
    let environment = Environment::read()?;
    // A build of the whole workspace may link several providers, and then none is the default. An earlier test may have
    // installed this one.
    let _ = ring::default_provider().install_default();
    let options = KubeConfigOptions { context: environment.context.clone(), ..KubeConfigOptions::default() };
    let config =
        Config::from_kubeconfig(&options).await.context("failed to read the file that KUBECONFIG names")?;
    let client = Client::try_from(config).context("failed to create a client")?;
    let namespaces = Api::<Namespace>::all(client.clone());
    let root = namespaces
        .create(&PostParams::default(), &new_namespace(topic, security))
        .await
        .context("failed to create a namespace")?;
    let sandbox = Sandbox { client, environment, namespace: root.name_any(), root };

    // A panic is resumed after the namespace is deleted.
    let outcome = AssertUnwindSafe(prepare_and_test(&sandbox, test)).catch_unwind().await;
    if !matches!(outcome, Ok(Ok(()))) {
        report::print_namespace(&sandbox).await;
    }
    let removed = remove(&namespaces, &sandbox).await;
    match outcome {
        Ok(tested) => tested.and(removed),
        Err(panic) => resume_unwind(panic),
    }
}

async fn prepare_and_test(sandbox: &Sandbox, test: impl AsyncFnOnce(&Sandbox) -> Result<()>) -> Result<()> {
    // The API server admits no pod before its service account exists.
    await_condition(&sandbox.api::<ServiceAccount>(), "default", "to exist", NAMESPACE_START, |_| true)
        .await?;
    test(sandbox).await
}

async fn remove(namespaces: &Api<Namespace>, sandbox: &Sandbox) -> Result<()> {
    let name = &sandbox.namespace;
    namespaces
        .delete(name, &DeleteParams::default())
        .await
        .with_context(|| format!("failed to delete namespace {name}"))?;
    await_deletion(namespaces, name, sandbox.root.metadata.uid.as_deref(), NAMESPACE_END).await
}

fn new_namespace(topic: &str, security: PodSecurity) -> Namespace {
    let level = match security {
        PodSecurity::Restricted => "restricted",
        PodSecurity::Privileged => "privileged",
    };
    let labels = [MANAGED_BY, ("pod-security.kubernetes.io/enforce", level)];
    Namespace {
        metadata: ObjectMeta {
            // The API server completes the name, so concurrent runs do not collide.
            generate_name: Some(format!("smoke-{topic}-")),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}
