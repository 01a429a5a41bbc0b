"""Prepares a cloud for Tempest, runs its tests, reports events as lines of JSON, and deletes what it has created."""

import configparser
import importlib.metadata
import json
import os
import re
import subprocess
import sys

import openstack
import stestr.commands
import subunit
import testtools

PROGRAM = "/program"
WORKSPACE = "/workspace"
CONFIGURATION = f"{WORKSPACE}/tempest.conf"
GUEST = "/guest/guest.qcow2"
# Names of the objects of this program; objects of the tests have Tempest's prefix.
IMAGE = "conformance-guest"
FLAVORS = {"conformance-small": 256, "conformance-larger": 320}
NETWORK = "conformance-public"
PRIVATE_NETWORK = "conformance-private"
TEMPEST_PREFIX = "tempest"
# Any other status is a failure.
VERDICTS = {"success": "passed", "skip": "skipped"}


def report(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def connect(settings):
    """Connects as administrator. Tempest reads the password from the same variable."""
    identity = settings["identity"]
    return openstack.connect(
        load_envvars=False,
        load_yaml_config=False,
        auth_url=identity["url"],
        username=identity["username"],
        password=os.environ["OS_AUTH__ADMIN_PASSWORD"],
        project_name="admin",
        user_domain_name="Default",
        project_domain_name="Default",
        region_name=identity["region"],
    )


def versions(cloud):
    """The version of Tempest and the newest version of each API."""
    found = {"Tempest": importlib.metadata.version("tempest")}
    for interfaces in cloud.session.get_all_version_data(interface="public").values():
        for service, offered in interfaces["public"].items():
            newest = max(offered, key=lambda version: number(version["version"]))
            found[f"{service} API"] = newest["max_microversion"] or newest["version"]
    return found


def number(version):
    return [int(part) for part in re.findall(r"\d+", version or "")]


def prepare(cloud, settings):
    """Creates the image, the flavors and the provider network that all tests use."""
    image = cloud.create_image(
        IMAGE,
        filename=GUEST,
        disk_format="qcow2",
        container_format="bare",
        visibility="public",
        # A guest that ignores the power button is stopped after this time.
        os_shutdown_timeout="5",
        wait=True,
    )
    flavors = [cloud.create_flavor(name, ram, 1, 1) for name, ram in FLAVORS.items()]
    # Plugins do not create networks for their instances.
    private = cloud.create_network(PRIVATE_NETWORK)
    cloud.create_subnet(private.id, subnet_name=PRIVATE_NETWORK, cidr=settings["projectRange"])
    return image, flavors, provider_network(cloud, settings["provider"])


def provider_network(cloud, provider):
    """The provider network. The physical network is flat, so that an existing network is the only possible one."""
    for existing in cloud.network.networks(is_router_external=True):
        return existing
    network = cloud.create_network(
        NETWORK,
        external=True,
        provider={"network_type": "flat", "physical_network": provider["physicalNetwork"]},
    )
    cloud.create_subnet(
        network.id,
        subnet_name=NETWORK,
        cidr=provider["range"],
        gateway_ip=provider["gateway"],
        allocation_pools=[{"start": provider["first"], "end": provider["last"]}],
        enable_dhcp=False,
    )
    return network


def configuration(cloud, settings):
    """The settings of every cloud and those of this one."""
    parser = configparser.RawConfigParser()
    parser.read(f"{PROGRAM}/tempest.conf")
    identity = settings["identity"]
    extensions = [extension.alias for extension in cloud.network.extensions()]
    parser["identity"]["uri_v3"] = identity["url"]
    parser["identity"]["region"] = identity["region"]
    parser["auth"]["admin_username"] = identity["username"]
    parser["compute"]["min_compute_nodes"] = str(len(list(cloud.compute.hypervisors())))
    parser["network"]["project_network_cidr"] = settings["projectRange"]
    parser["network-feature-enabled"]["api_extensions"] = ",".join(sorted(extensions))
    parser["heat_plugin"].update(auth_url=identity["url"], region=identity["region"])
    parser["heat_plugin"].update(username=identity["username"], admin_username=identity["username"])
    return parser


def write(parser):
    with open(CONFIGURATION, "w", encoding="utf-8") as file:
        parser.write(file)


def tempest(*arguments):
    return ["tempest", *arguments]


def select(regex):
    """The names of the selected tests."""
    # Listing needs a directory for results.
    stestr.commands.init_command()
    command = tempest("run", "--config-file", CONFIGURATION, "--regex", regex, "--list-tests")
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    tests = [line for line in answer.splitlines() if re.match(r"\w*tempest\w*\.", line)]
    if not tests:
        sys.exit(f"no test matches {regex}: {answer}")
    return tests


def run(regex, workers):
    """Runs the tests. Failed tests are results, not errors of this program."""
    command = tempest("run", "--config-file", CONFIGURATION, "--regex", regex, "--subunit", "--concurrency", workers)
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    results = testtools.StreamToDict(report_result)
    results.startTestRun()
    subunit.ByteStreamToStreamResult(process.stdout, non_subunit_name="output").run(results)
    results.stopTestRun()
    process.wait()


def report_result(test):
    if test["status"] == "exists":
        return
    verdict = VERDICTS.get(test["status"], "failed")
    started, ended = test["timestamps"]
    seconds = (ended - started).total_seconds() if started and ended else 0
    details = {name: content.as_text() for name, content in test["details"].items() if is_text(content)}
    reason = details.get("reason", "")
    if verdict == "failed":
        traces = [text for name, text in details.items() if name.startswith("traceback")]
        # The requests without their bodies.
        requests = [line for line in details.get("pythonlogging:''", "").splitlines() if " Request (" in line]
        reason = "\n".join(traces + requests)
    report("result", test=test["id"], verdict=verdict, seconds=seconds, detail=reason.strip())


def is_text(content):
    return content.content_type.type == "text"


def remove(cloud):
    """Deletes the objects of this program and of the tests, also those of a killed run."""
    subprocess.run(tempest("cleanup", "--prefix", TEMPEST_PREFIX), check=True)
    for name in [NETWORK, PRIVATE_NETWORK]:
        for network in cloud.network.networks(name=name):
            cloud.network.delete_network(network)
    for image in cloud.image.images(name=IMAGE):
        cloud.image.delete_image(image)
    for flavor in cloud.compute.flavors():
        if flavor.name in FLAVORS:
            cloud.compute.delete_flavor(flavor)


def main():
    os.chdir(WORKSPACE)
    with open(f"{PROGRAM}/settings.json", encoding="utf-8") as file:
        settings = json.load(file)
    os.environ["TEMPEST_CONFIG_DIR"] = WORKSPACE
    # The plugin has options of its own for the administrator.
    for option in ["PASSWORD", "ADMIN_PASSWORD"]:
        os.environ[f"OS_HEAT_PLUGIN__{option}"] = os.environ["OS_AUTH__ADMIN_PASSWORD"]
    cloud = connect(settings)
    report("versions", versions=versions(cloud))
    parser = configuration(cloud, settings)
    write(parser)
    report("step", text="deleting objects of earlier runs")
    remove(cloud)
    try:
        report("step", text="creating an image, flavors and a network")
        image, (flavor, larger), network = prepare(cloud, settings)
        parser["compute"].update(
            image_ref=image.id, image_ref_alt=image.id, flavor_ref=flavor.id, flavor_ref_alt=larger.id
        )
        parser["network"].update(public_network_id=network.id, floating_network_name=network.name)
        parser["heat_plugin"].update(
            image_ref=image.id, minimal_image_ref=image.id, instance_type=larger.id, minimal_instance_type=flavor.id
        )
        parser["heat_plugin"].update(fixed_network_name=PRIVATE_NETWORK, fixed_subnet_name=PRIVATE_NETWORK)
        parser["heat_plugin"].update(network_for_ssh=PRIVATE_NETWORK, floating_network_name=network.name)
        write(parser)
        report("step", text="selecting tests")
        report("selected", tests=select(settings["tests"]))
        run(settings["tests"], settings["workers"])
        report("ended")
    finally:
        report("step", text="deleting the objects of this run")
        remove(cloud)
    report("removed")


main()
