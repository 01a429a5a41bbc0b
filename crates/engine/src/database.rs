//! Databases of an object: created before the installation, and never replaced by empty ones afterwards.

use openstack_operator_model::common::ACCEPT_LOSS_ANNOTATION;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::JOB;
use openstack_operator_model::lower::{Instance, task};
use openstack_operator_model::plan::{Database, Plan, TaskStage};
use openstack_operator_model::status::EffectKind;

use crate::effect::{incomplete_secret, not_available, stalled_if_refused};
use crate::engine::Engine;
use crate::gather::Gathered;
use crate::ports::{PortResult, SqlGrant};
use crate::work::Work;

impl Engine {
    /// Ensures all databases of a plan with their users.
    pub(crate) async fn ensure_databases(
        &self,
        instance: &Instance,
        plan: &Plan,
        gathered: &Gathered,
        work: &mut Work,
    ) -> PortResult<Progress> {
        for database in &plan.databases {
            if gathered.unavailable.contains(&database.provider) {
                return Ok(not_available(&database.provider));
            }
            let ensured = self.ensure_database(instance, plan, database, work).await;
            let progress = stalled_if_refused(&work.key, &database.provider, ensured)?;
            if !progress.is_met() {
                return Ok(progress);
            }
        }
        Ok(Progress::Done)
    }

    async fn ensure_database(
        &self,
        instance: &Instance,
        plan: &Plan,
        database: &Database,
        work: &mut Work,
    ) -> PortResult<Progress> {
        let namespace = &instance.namespace;
        let (Some(server), Some(user)) = (
            self.sql_server(namespace, &database.server).await?,
            self.login(namespace, &database.secret).await?,
        ) else {
            return Ok(Progress::waiting(incomplete_secret(&database.server.secret)));
        };
        let name = &database.database;
        if work.status.databases.contains(name) && !self.ports.sql.has_database(&server, name).await? {
            if !work.accepted_losses.contains(name) {
                return Ok(Progress::stalled(lost_message(instance, database)));
            }
            return self.repeat_installation(instance, plan, name, work).await;
        }
        let grant = SqlGrant {
            database: name.clone(),
            charset: database.charset,
            database_claim: work.claim(EffectKind::Database, &database.provider, name),
            user_claim: work.claim(EffectKind::DatabaseUser, &database.provider, &user.username),
            user,
        };
        let outcome = self.ports.sql.ensure(&server, &grant).await?;
        if outcome.wrote {
            tracing::info!(database = name, "updated database and user");
        }
        work.findings.remarks.extend(outcome.other_charset.map(|found| {
            let wanted = database.charset.name();
            format!("database {name} has character set {found}; the operator does not convert it to {wanted}")
        }));
        Ok(Progress::Done)
    }

    /// Lets all tasks of a new installation run again, because the content of a database is lost.
    ///
    /// **Invariant:** the status forgets the installation before the operator creates an empty database, so that an
    /// operator that restarts in between still installs it.
    async fn repeat_installation(
        &self,
        instance: &Instance,
        plan: &Plan,
        database: &str,
        work: &mut Work,
    ) -> PortResult<Progress> {
        let is_repeated = |stage: &TaskStage| matches!(stage, TaskStage::Install | TaskStage::Bootstrap);
        for task in plan.tasks.iter().filter(|task| is_repeated(&task.stage)) {
            let name = task::job_name(&instance.name, task);
            if let Some(job) = self.ports.cluster.get(JOB, &instance.namespace, &name).await? {
                let uid = job.metadata.uid.as_deref().unwrap_or_default();
                self.ports.cluster.delete(JOB, &instance.namespace, &name, uid).await?;
            }
        }
        work.status.installed = None;
        work.status.databases.retain(|known| known != database);
        work.requeue_now = true;
        tracing::info!(database, "the user has accepted the loss of a database; installing it again");
        Ok(Progress::waiting(format!("the operator installs database {database} again")))
    }
}

fn lost_message(instance: &Instance, database: &Database) -> String {
    let Database { database: name, server, .. } = database;
    format!(
        "database {name} does not exist on {} although it was installed: restore it, or set annotation \
         {ACCEPT_LOSS_ANNOTATION}: {name} on {} {} to install it again, which loses its content",
        server.host, instance.kind.kind, instance.name
    )
}
