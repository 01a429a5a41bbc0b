//! Parts of a plan that few services use.

use openstack_operator_model::need::Resolved;
use openstack_operator_model::plan::SecretContent;
use openstack_operator_model::release::Varying;
use serde_json::{Value, json};

use super::*;
use crate::testing;

const PROJECT: Project = Project {
    name: "sample",
    user: 1000,
    configuration: "sample.conf",
    manage: "sample-manage",
    image: ImageNames { kolla: "sample", debian: "sample" },
    scratch: &[],
    amounts: Amounts { cpu: "1m", memory: "1Mi", memory_limit: "2Mi" },
};

/// The plan of a service with this template that `build` completes.
fn plan(template: Value, build: impl FnOnce(&mut Program<'_, ()>)) -> Result<Plan, Invalid> {
    let origin: Origin = serde_json::from_value(json!({})).unwrap();
    let template: ApiTemplate = serde_json::from_value(template).unwrap();
    let settings = Settings::from_template(&origin, &template);
    testing::with_context(&Resolved::default(), |context| {
        let mut program = Program::new(context, &PROJECT, settings, &Port::tcp("api", 80), &[])?;
        build(&mut program);
        program.finish()
    })
}

#[test]
fn options_from_secrets_are_mounted_where_oslo_config_reads_them_last() {
    let plan = plan(json!({}), |sample| {
        sample.secret_options.set_keys("crypto", "kek", "cloud-sample-ring");
        sample.only_api(Port::tcp("api", 80), "/", Uwsgi::new(Varying::same("sample.wsgi")));
    })
    .unwrap();
    let secret = plan.secrets.last().unwrap();
    let SecretContent::Entries(entries) = &secret.content else { panic!("{secret:?}") };
    assert_eq!(secret.name, "cloud-sample-options");
    assert!(entries.keys().eq(["secrets.conf"]), "{entries:?}");
    let mount = Mount::SecretFile {
        secret: "cloud-sample-options".to_owned(),
        key: "secrets.conf".to_owned(),
        path: "/etc/sample/sample.conf.d/secrets.conf".to_owned(),
    };
    assert!(plan.containers().all(|container| container.mounts.contains(&mount)), "{plan:?}");
    assert!(!plan.files["sample.conf"].text().unwrap().contains("kek"));
}

#[test]
fn an_option_that_comes_from_a_secret_is_rejected_in_extra_config() {
    let template = json!({ "extraConfig": { "sample.conf": { "crypto": { "kek": "x" } } } });
    let refused =
        plan(template.clone(), |sample| sample.secret_options.set_keys("crypto", "kek", "cloud-sample-ring"));
    let refused = refused.unwrap_err();
    assert_eq!(refused.path, "spec.extraConfig.\"sample.conf\".crypto.kek");
    assert!(refused.reason.contains("get this option from a Secret"), "{refused}");
    assert!(plan(template, |_| ()).is_ok());
}

#[test]
fn a_schedule_runs_like_a_task() {
    let plan = plan(json!({}), |sample| {
        let command = || shared::command(["sample-manage", "purge"]);
        sample.task("purge-once", TaskStage::Configure, command());
        sample.schedule("purge", Cron::new("0 3 * * *").unwrap(), command());
    })
    .unwrap();
    let (task, schedule) = (&plan.tasks[0], &plan.schedules[0]);
    assert_eq!((&task.container, task.user), (&schedule.container, schedule.user));
    assert_eq!(schedule.cron.as_str(), "0 3 * * *");
}
