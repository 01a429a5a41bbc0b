//! Protects the account that the operator uses on a server from being changed or removed.

use openstack_operator_engine::ports::{Login, PortError, PortResult};

/// Rejects the administrator as a service user, which would lock the operator out.
pub(crate) fn protect(administrator: &Login, user: &str, action: &str) -> PortResult<()> {
    if administrator.username == user {
        return Err(PortError::Rejected {
            action: action.to_owned(),
            reason: format!("user {user} is the administrator of the server; choose another username"),
        });
    }
    Ok(())
}
