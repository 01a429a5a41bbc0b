//! Settings of Django and Horizon, as JSON that the pods read.

use openstack_operator_model::common::Scheme;
use openstack_operator_model::service::{Context, Invalid};
use serde_json::{Map, Value, json};

use super::{Horizon, HorizonTemplate, STATIC_FILES, Theme};
use crate::shared::{self, api};

pub(super) const FILE: &str = "settings.json";
pub(super) const PATH: &str = "/etc/openstack-dashboard/settings.json";
/// Settings that cannot be overridden, each with the reason.
const FIXED: [(&str, &str); 4] = [
    ("SECRET_KEY", "it comes from a Secret"),
    ("STATIC_ROOT", "uWSGI serves the files of one directory"),
    ("STATIC_URL", "uWSGI serves the files under one path"),
    ("WEBROOT", "Horizon has a host name of its own; use publicHostname"),
];

/// The settings, with the overrides of the user.
pub(super) fn render(context: &Context<'_, Horizon>) -> Result<String, Invalid> {
    let HorizonTemplate { keystone, theme, settings, .. } = &context.object.spec.template;
    let mut all = Map::new();
    all.insert("ALLOWED_HOSTS".to_owned(), json!(hosts(context)));
    all.insert("CACHES".to_owned(), caches(context)?);
    all.insert("COMPRESS_OFFLINE".to_owned(), json!(true));
    all.insert("LOGGING".to_owned(), logging());
    all.insert("OPENSTACK_ENDPOINT_TYPE".to_owned(), json!("internalURL"));
    all.insert("OPENSTACK_KEYSTONE_URL".to_owned(), json!(shared::identity_url(context, keystone)?));
    all.insert("SESSION_ENGINE".to_owned(), json!("django.contrib.sessions.backends.cache"));
    all.insert("STATIC_ROOT".to_owned(), json!(STATIC_FILES));
    all.extend(transport(context));
    all.extend(styles(theme));
    for (name, text) in settings {
        let value = parse(name, text)?;
        // A map of the user is merged, like those of the operator with the defaults of Horizon.
        match (all.get_mut(name), value) {
            (Some(Value::Object(own)), Value::Object(given)) => own.extend(given),
            (_, value) => {
                all.insert(name.clone(), value);
            }
        }
    }
    // Maps of JSON always serialize.
    Ok(serde_json::to_string_pretty(&all).unwrap_or_default() + "\n")
}

/// Host names of requests. Pods add their own address.
fn hosts(context: &Context<'_, Horizon>) -> Vec<String> {
    let public = context.object.spec.template.exposure.public_hostname.clone();
    let service = shared::service_host(context, context.name);
    let qualified = format!("{service}.{}", context.site.cluster_domain);
    // The last is that of a forwarded port.
    public.into_iter().chain([service, qualified, "localhost".to_owned()]).collect()
}

fn caches(context: &Context<'_, Horizon>) -> Result<Value, Invalid> {
    let servers = shared::cache_servers(context, &context.object.spec.template.cache)?;
    if servers.is_empty() {
        let reason = "is incomplete: sessions need a Memcached in clusterRef or existing servers in servers";
        return Err(Invalid::new("spec.cache", reason));
    }
    Ok(json!({ "default": {
        "BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
        "LOCATION": servers,
        // A lost server ends its sessions only: others serve its keys after the first failures.
        "OPTIONS": {
            "connect_timeout": 2, "timeout": 2, "no_delay": true, "ignore_exc": true,
            "retry_attempts": 1, "retry_timeout": 1, "dead_timeout": 30,
        },
    }}))
}

fn logging() -> Value {
    json!({
        "version": 1,
        "disable_existing_loggers": false,
        "formatters": { "line": { "format": "%(asctime)s %(levelname)s %(name)s %(message)s" } },
        "handlers": { "stderr": { "class": "logging.StreamHandler", "formatter": "line" } },
        "root": { "handlers": ["stderr"], "level": "INFO" },
    })
}

/// Settings for the Gateway, which ends TLS.
fn transport(context: &Context<'_, Horizon>) -> Vec<(String, Value)> {
    let exposure = &context.object.spec.template.exposure;
    let is_secure = exposure.public_scheme.unwrap_or_default() == Scheme::Https;
    if api::public_url(exposure).is_none() || !is_secure {
        return Vec::new();
    }
    vec![
        ("CSRF_COOKIE_SECURE".to_owned(), json!(true)),
        ("SECURE_PROXY_SSL_HEADER".to_owned(), json!(["HTTP_X_FORWARDED_PROTO", "https"])),
        ("SESSION_COOKIE_SECURE".to_owned(), json!(true)),
    ]
}

fn styles(theme: &Theme) -> Vec<(String, Value)> {
    let Theme { name, path } = theme;
    let mut settings = vec![("DEFAULT_THEME".to_owned(), json!(name))];
    if let Some(path) = path {
        let (base, own) = (json!(["default", "Default", "themes/default"]), json!([name, name, path]));
        // A theme usually imports the default theme.
        settings.push(("AVAILABLE_THEMES".to_owned(), json!([base, own])));
        settings.push(("SELECTABLE_THEMES".to_owned(), json!([own])));
    }
    settings
}

/// Value of a setting: JSON, or else a string.
fn parse(name: &str, text: &str) -> Result<Value, Invalid> {
    let invalid = |reason: String| Invalid::new(format!("spec.settings.{name}"), reason);
    let is_capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if !name.chars().all(is_capital) || !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Err(invalid(
            "is not a setting of Horizon: names consist of capitals, digits and _".to_owned(),
        ));
    }
    if let Some((_, reason)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
        return Err(invalid(format!("cannot be set, because {reason}: remove it")));
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if text.trim_start().starts_with(['{', '[', '"']) => {
            Err(invalid(format!("is not valid JSON: {error}")))
        }
        Err(_) => Ok(json!(text)),
    }
}
