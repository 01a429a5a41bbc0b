"""Prints the IDs of the project and of the user of Cinder, which own the volumes of the image cache."""

from keystoneauth1 import loading
from oslo_config import cfg

SECTION = "service_user"


def main():
    configuration = cfg.ConfigOpts()
    loading.register_auth_conf_options(configuration, SECTION)
    loading.register_session_conf_options(configuration, SECTION)
    configuration(["--config-file", "/etc/cinder/cinder.conf"], project="cinder")
    login = loading.load_auth_from_conf_options(configuration, SECTION)
    session = loading.load_session_from_conf_options(configuration, SECTION, auth=login)
    print(session.get_project_id(), session.get_user_id())


main()
