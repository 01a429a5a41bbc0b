//! Keeps the account that the operator itself uses on a server from being changed or removed as if it were another's.

use openstack_operator_engine::ports::{Login, PortError, PortResult};

/// Refuses where the user is the administrator: whoever names it by mistake would lock the operator out.
pub(crate) fn protect(administrator: &Login, user: &str, action: &str) -> PortResult<()> {
    if administrator.username == user {
        return Err(PortError::Rejected {
            action: action.to_owned(),
            reason: format!("{user} is the server's administrator; choose another username"),
        });
    }
    Ok(())
}
