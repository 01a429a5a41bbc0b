//! A namespace for one test: made for it alone, and removed whatever becomes of the test.

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

/// Marks every namespace of this suite, so that those of an aborted run can be found and deleted.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "openstack-operator-smoke");
const NAMESPACE_START: Duration = Duration::from_mins(1);
const NAMESPACE_END: Duration = Duration::from_mins(3);

/// Tests share the cluster; one that takes a node away has it alone.
static CLUSTER: RwLock<()> = RwLock::const_new(());

/// The Pod Security Standard that a namespace enforces.
#[derive(Clone, Copy, Debug)]
pub enum PodSecurity {
    Restricted,
    Privileged,
}

/// One test's namespace and the means to work in it.
pub struct Sandbox {
    pub client: Client,
    pub environment: Environment,
    pub namespace: String,
    /// The namespace as an object: owner of what a test must make elsewhere, which then goes with it.
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

    /// Runs a part of a test in a further namespace, beside the one that the test has.
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

/// Runs a test in a namespace of its own, beside other tests.
pub async fn with_namespace(
    topic: &str,
    security: PodSecurity,
    test: impl AsyncFnOnce(&Sandbox) -> Result<()>,
) -> Result<()> {
    let _shared = CLUSTER.read().await;
    run(topic, security, test).await
}

/// Runs a test in a namespace of its own while no other test runs.
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
    // A build of the whole workspace may link several providers, and then none is the default by itself.
    // It is no error that an earlier test installed this one.
    let _ = ring::default_provider().install_default();
    let options = KubeConfigOptions { context: environment.context.clone(), ..KubeConfigOptions::default() };
    let config =
        Config::from_kubeconfig(&options).await.context("failed to read the file that KUBECONFIG names")?;
    let client = Client::try_from(config).context("failed to make a client")?;
    let namespaces = Api::<Namespace>::all(client.clone());
    let root = namespaces
        .create(&PostParams::default(), &new_namespace(topic, security))
        .await
        .context("failed to create a namespace")?;
    let sandbox = Sandbox { client, environment, namespace: root.name_any(), root };

    // The namespace must go even when an assertion fails, so a panic waits until that is done.
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
    // No pod is admitted before the controller has made the account that pods run under.
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
            // The API server completes the name, so that runs at the same time cannot meet.
            generate_name: Some(format!("smoke-{topic}-")),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}
