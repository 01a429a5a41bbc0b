"""Neutron creates networks, subnets, routers, security groups and ports, and its agents are alive."""

import contextlib
import ipaddress
import secrets
import time

import openstack

NAME = f"proof-{secrets.token_hex(4)}"
# TEST-NET-3: no network of a cluster uses it.
RANGE = "203.0.113.0/28"
AGENT_LIMIT = 300


def wait_for_agents(cloud):
    deadline = time.monotonic() + AGENT_LIMIT
    while True:
        agents = list(cloud.network.agents())
        dead = [f"{agent.agent_type} on {agent.host}" for agent in agents if not agent.is_alive]
        if agents and not dead:
            return
        assert time.monotonic() < deadline, f"agents are not alive: {dead or 'there are none'}"
        time.sleep(2)


def main():
    cloud = openstack.connect()
    wait_for_agents(cloud)
    network = cloud.network
    with contextlib.ExitStack() as cleanup:
        net = network.create_network(name=NAME)
        cleanup.callback(network.delete_network, net)
        subnet = network.create_subnet(name=NAME, network_id=net.id, ip_version=4, cidr=RANGE)
        cleanup.callback(network.delete_subnet, subnet)
        group = network.create_security_group(name=NAME)
        cleanup.callback(network.delete_security_group, group)
        rule = network.create_security_group_rule(
            security_group_id=group.id, direction="ingress", protocol="tcp", port_range_min=22, port_range_max=22
        )
        rules = network.get_security_group(group.id).security_group_rules
        assert rule.id in [found["id"] for found in rules], rules
        port = network.create_port(name=NAME, network_id=net.id, security_groups=[group.id])
        cleanup.callback(network.delete_port, port)
        [address] = [fixed["ip_address"] for fixed in port.fixed_ips]
        assert ipaddress.ip_address(address) in ipaddress.ip_network(RANGE), address
        router = network.create_router(name=NAME)
        cleanup.callback(network.delete_router, router)
        network.add_interface_to_router(router, subnet_id=subnet.id)
        cleanup.callback(network.remove_interface_from_router, router, subnet_id=subnet.id)
        owners = {found.device_owner for found in network.ports(network_id=net.id)}
        assert any("router_interface" in owner for owner in owners), owners
        network.update_port(port, name=f"{NAME}-renamed")
        assert network.get_port(port.id).name == f"{NAME}-renamed"
    assert network.find_network(NAME) is None


main()
