"""Keystone issues tokens, publishes the catalog, and enforces users, roles and application credentials."""

import contextlib
import secrets

import keystoneauth1.exceptions
import openstack

NAME = f"proof-{secrets.token_hex(4)}"
INTERFACES = {"public", "internal"}


def connect(administrator, auth_type="password", **auth):
    return openstack.connect(
        load_envvars=False,
        load_yaml_config=False,
        auth_type=auth_type,
        auth={"auth_url": administrator.config.auth["auth_url"], **auth},
        region_name=administrator.config.region_name,
    )


def check_catalog(cloud):
    access = cloud.session.auth.get_access(cloud.session)
    catalog = {service["type"]: service["endpoints"] for service in access.service_catalog.catalog}
    assert "identity" in catalog, sorted(catalog)
    for service, endpoints in catalog.items():
        found = {endpoint["interface"] for endpoint in endpoints}
        assert INTERFACES <= found, f"{service} has endpoints {found}"
    public = [endpoint["url"] for endpoint in catalog["identity"] if endpoint["interface"] == "public"]
    host = cloud.config.auth["auth_url"].split("/")[2]
    assert all(url.split("/")[2] == host for url in public), f"{public} are not at {host}"


def main():
    cloud = openstack.connect()
    assert cloud.session.get_token()
    check_catalog(cloud)
    assert cloud.identity.find_user("admin") is not None
    assert cloud.identity.find_project("service") is not None
    with contextlib.ExitStack() as cleanup:
        project = cloud.identity.create_project(name=NAME, domain_id="default")
        cleanup.callback(cloud.identity.delete_project, project)
        password = secrets.token_hex(16)
        user = cloud.identity.create_user(name=NAME, password=password, domain_id="default")
        cleanup.callback(cloud.identity.delete_user, user)
        login = {"username": NAME, "password": password, "user_domain_id": "default", "project_id": project.id}
        try:
            connect(cloud, **login).session.get_token()
            raise AssertionError("a user without a role gets a token for a project")
        except keystoneauth1.exceptions.Unauthorized:
            pass
        role = cloud.identity.find_role("member", ignore_missing=False)
        cloud.identity.assign_project_role_to_user(project, user, role)
        member = connect(cloud, **login)
        assert member.session.get_token()
        try:
            list(member.identity.users())
            raise AssertionError("a member may list all users")
        except openstack.exceptions.HttpException as error:
            assert error.status_code == 403, error
        credential = member.identity.create_application_credential(user, NAME)
        application = connect(
            cloud,
            auth_type="v3applicationcredential",
            application_credential_id=credential.id,
            application_credential_secret=credential.secret,
        )
        assert application.session.get_token()
        assert application.session.get_project_id() == project.id


main()
