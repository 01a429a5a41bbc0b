//! `bundle`: writes a support bundle.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use kube::Client;
use serde_json::json;
use snafu::{ResultExt, Snafu};

use crate::bundle::collect::{Collection, collect};
use crate::bundle::{Entry, write};
use crate::check::answer::{Answer, Unreadable};
use crate::check::cloud::CloudFacts;
use crate::check::{Report, cloud, gather};
use crate::cluster::{self, ClusterArguments};
use crate::output::{self, Paint};
use crate::tree::{Names, Style, draw, forest};

/// Write an archive for support: objects, events, logs, status and check of a cloud and of the operator.
///
/// The archive lists Secrets by name and keys, and masks their values everywhere else. Its errors.txt names everything that
/// could not be read.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator bundle -n openstack
  openstack-operator bundle -A --output support.tar.gz --tail 10000")]
pub(crate) struct Arguments {
    /// Namespace of the cloud [default: that of the kubeconfig's context].
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    /// All namespaces with objects of the operator's kinds.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// File to write [default: openstack-bundle-TIME.tar.gz in this directory].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Lines of each log, from its end.
    #[arg(long, default_value_t = 2000, value_name = "LINES", value_parser = clap::value_parser!(i64).range(1..))]
    tail: i64,
    #[command(flatten)]
    cluster: ClusterArguments,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Cluster { source: cluster::Error },
    #[snafu(transparent)]
    Print { source: output::Error },
    #[snafu(display("{reason}"))]
    Connect { reason: Unreadable },
    #[snafu(display("failed to write {}", path.display()))]
    Write { path: PathBuf, source: std::io::Error },
}

pub(crate) async fn bundle(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = arguments.cluster.client().await?;
    let namespace = (!arguments.all_namespaces)
        .then(|| arguments.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned()));
    let kubernetes = gather::version(&client).await.map_err(|reason| Error::Connect { reason })?;
    output::remark("checking the cloud");
    let facts = gather::cloud(&client, namespace.as_deref(), None).await;
    let namespaces = namespaces(&client, namespace.as_ref(), &facts).await;
    let Collection { mut entries, mut errors, masker } = collect(&client, &namespaces, arguments.tail).await;
    let now = Timestamp::now();
    entries.push(versions(&kubernetes, &facts, now));
    match &facts {
        Ok(facts) => entries.extend(summaries(facts, now)),
        Err(reason) => errors.push(format!("status.txt and check.txt: {reason}")),
    }
    if !errors.is_empty() {
        output::remark(&format!("{} parts could not be read; errors.txt names them", errors.len()));
        entries.push(Entry { path: "errors.txt".to_owned(), text: format!("{}\n", errors.join("\n")) });
    }
    let directory = format!("openstack-bundle-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let path = arguments.output.clone().unwrap_or_else(|| PathBuf::from(format!("{directory}.tar.gz")));
    let time = u64::try_from(now.as_second()).unwrap_or(0);
    write(&path, &directory, &entries, &masker, time).context(WriteSnafu { path: path.clone() })?;
    output::print(&format!("{}\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The namespaces of the clouds and of the operator.
async fn namespaces(
    client: &Client,
    namespace: Option<&String>,
    facts: &Answer<CloudFacts>,
) -> BTreeSet<String> {
    let mut namespaces: BTreeSet<String> = namespace.cloned().into_iter().collect();
    let operator = match facts {
        Ok(facts) => {
            namespaces.extend(facts.objects.iter().map(|(key, _)| key.namespace.clone()));
            facts.operator.clone()
        }
        Err(_) => gather::operator(client).await,
    };
    let deployments = operator.deployments.unwrap_or_default();
    namespaces.extend(
        deployments.iter().filter_map(|found| Some(found["metadata"]["namespace"].as_str()?.to_owned())),
    );
    namespaces
}

fn versions(kubernetes: &str, facts: &Answer<CloudFacts>, now: Timestamp) -> Entry {
    let operator = facts.as_ref().ok().and_then(|facts| facts.operator.versions.as_ref().ok());
    let text = json!({
        "program": env!("CARGO_PKG_VERSION"),
        "operator": operator,
        "kubernetes": kubernetes,
        "time": now.to_string(),
    });
    Entry { path: "versions.json".to_owned(), text: format!("{text:#}\n") }
}

fn summaries(facts: &CloudFacts, now: Timestamp) -> [Entry; 2] {
    let style = Style { paint: Paint::Plain, now, width: usize::MAX, names: Names::WithNamespace };
    let status = format!("{}\n", draw(&forest(&facts.objects, None), style).join("\n"));
    let check = Report(cloud::check(facts)).text(Paint::Plain);
    [("status.txt", status), ("check.txt", check)].map(|(path, text)| Entry { path: path.to_owned(), text })
}
