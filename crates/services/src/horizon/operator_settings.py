# Settings of the operator. Horizon executes this file among its other settings, and would ignore an error: exit instead.
import importlib.util
import json
import os

_DIRECTORY = "/etc/openstack-dashboard"
# Dashboards of services. An image has some of them. Their panels are hidden while the catalog does not have the service.
_DASHBOARDS = ["heat_dashboard"]


def _merge(settings):
    """Sets all settings. A map is merged into the default."""
    for name, value in settings.items():
        default = globals().get(name)
        globals()[name] = {**default, **value} if isinstance(default, dict) and isinstance(value, dict) else value


def _add_dashboard(directory):
    """Adds the panels, settings and policies of a dashboard that the image does not enable itself."""
    local_enabled.__path__.append(os.path.join(directory, "enabled"))
    snippets = os.path.join(directory, "local_settings.d")
    for name in sorted(os.listdir(snippets)) if os.path.isdir(snippets) else []:
        if name.endswith(".py") and not os.path.exists(os.path.join(LOCAL_SETTINGS_DIR_PATH, name)):
            with open(os.path.join(snippets, name), encoding="utf-8") as snippet:
                exec(snippet.read(), globals())
    for files in (POLICY_FILES, DEFAULT_POLICY_FILES):
        for service, name in files.items():
            own = os.path.join(directory, "conf", name)
            if not os.path.exists(os.path.join(POLICY_FILES_PATH, name)) and os.path.exists(own):
                files[service] = own


def _apply():
    for dashboard in _DASHBOARDS:
        found = importlib.util.find_spec(dashboard)
        if found is not None:
            _add_dashboard(os.path.dirname(found.origin))
    with open(os.path.join(_DIRECTORY, "settings.json"), encoding="utf-8") as file:
        _merge(json.load(file))
    # Probes address the pod.
    address = os.environ["POD_IP"]
    ALLOWED_HOSTS.extend([address, f"[{address}]"])
    rules = os.path.join(_DIRECTORY, "policy.d")
    if os.path.isdir(rules):
        for service in POLICY_FILES:
            POLICY_DIRS[service] = [*POLICY_DIRS.get(service, []), rules]


try:
    _apply()
except Exception as error:
    raise SystemExit(f"failed to apply the settings of the operator: {error!r}")
