"""Allocates the cluster IPs and node ports of a Service as the last step of its write, requested or free ones, in IP
families that depend on the Service and the cluster (KEP-563).

  Condition                                               IP families
  headless without a selector                             those requested; both without a request, even if not offered
  the policy SingleStack                                  the requested one, else the cluster's first
  PreferDualStack, RequireDualStack                       those requested, and the other one where it is offered
  An update that keeps a dual-stack policy keeps its families, even if the cluster has changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.services.allocations import Allocations, items_of_tree
from apiserver_stub.admission.services.ranges import ServiceRanges, addresses, ports
from apiserver_stub.common.error_list import shown
from apiserver_stub.kinds.strategies.services import (
    is_headless,
    may_have_node_ports,
    needs_addresses,
    needs_health_port,
    needs_node_ports,
)
from apiserver_stub.kinds.values.trees import dicts
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import Cause, InternalError, internal_error, invalid
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.random import random_source

_FAMILIES = ("IPv4", "IPv6")
_SINGLE, _PREFER, _REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
_POLICY = "spec.ipFamilyPolicy"


def family(address: str) -> str:
    """Return the family of an address."""
    return f"IPv{ip_address(address).version}"


def wrong(field: str, value: Any, why: str) -> Cause:
    """Return the cause for a value that is not available."""
    return Cause(reason="FieldValueInvalid", message=f"Invalid value: {shown(value)}: {why}", field=field)


def choose(spec: Tree, old: Tree, offered: Sequence[str]) -> list[Cause]:
    """Set `ipFamilyPolicy`, `ipFamilies` and the number of `clusterIPs`, in place; return all errors.

    `old` is the previous spec, empty for a new Service; `offered` are the families of the cluster, its default first.
    """
    if not needs_addresses(spec):
        return []
    before = old if needs_addresses(old) else {}
    spec["ipFamilyPolicy"] = policy = spec.get("ipFamilyPolicy") or before.get("ipFamilyPolicy") or _usual_policy(spec)
    if _prefers_as_before(spec, before):
        spec["ipFamilies"] = before["ipFamilies"]
        return []
    if policy == _SINGLE:
        _shrink(spec, before)
    addresses, families = _list(spec, "clusterIPs"), _list(spec, "ipFamilies")
    problems = [*_counts(policy, addresses, families, before), *_matches(addresses, families, offered)]
    if problems:
        return problems
    families += [family(address) for address in addresses[len(families) :] if address != "None"]
    free_choice = is_headless(spec) and not spec.get("selector")
    problems = [] if free_choice else _offers(policy, families, offered)
    if problems:
        return problems
    families = families or [offered[0]]
    if policy != _SINGLE and len(families) == 1 and (free_choice or len(offered) == 2):
        families.append(_FAMILIES[families[0] == _FAMILIES[0]])
    spec["ipFamilies"] = families
    return []


def _usual_policy(spec: Tree) -> str:
    return _REQUIRE if is_headless(spec) and not spec.get("selector") else _SINGLE


def _list(spec: Tree, name: str) -> list[Any]:
    return list(spec.get(name) or ())


def _prefers_as_before(spec: Tree, before: Tree) -> bool:
    if spec["ipFamilyPolicy"] != _PREFER or before.get("ipFamilyPolicy") != _PREFER or "ipFamilies" not in before:
        return False
    same_families = spec.get("ipFamilies") in (None, [], before["ipFamilies"])
    return same_families and spec.get("clusterIPs") == before.get("clusterIPs")


def _shrink(spec: Tree, before: Tree) -> None:
    """Reduce unchanged lists to the first family when an update selects SingleStack."""
    for name in ("clusterIPs", "ipFamilies"):
        if before and spec.get(name) == before.get(name) and spec.get(name):
            spec[name] = spec[name][:1]


def _counts(policy: str, addresses: list[Any], families: list[Any], before: Tree) -> list[Cause]:
    found = []
    for given, name, word, words in (
        (addresses, "clusterIPs", "cluster IP", "cluster IPs"),
        (families, "ipFamilies", "IP family", "IP families"),
    ):
        if len(given) > 2:
            found.append(wrong(f"spec.{name}", given, "may only hold up to 2 values"))
        elif policy == _SINGLE and len(given) == 2:
            why = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {words} are specified"
            found.append(wrong(_POLICY, policy, why))
        elif policy != _SINGLE and len(given) == 1 and len(before.get(name) or ()) == 2:
            found.append(wrong(_POLICY, policy, f"must be 'SingleStack' to release the secondary {word}"))
    return found


def _matches(addresses: list[Any], families: list[Any], offered: Sequence[str]) -> list[Cause]:
    """Return the errors of requested addresses: each must be valid, and of the family at its index."""
    found, seen = [], []
    for i, address in enumerate(addresses):
        field = f"spec.clusterIPs[{i}]"
        if address == "None":
            if len(addresses) > 1:
                found.append(wrong(field, address, "'None' must be the first and only value"))
            continue
        try:
            seen.append(family(address))
        except ValueError:
            found.append(wrong(field, address, "must be an IP address, such as 10.9.8.7 or 2001:db8::ffff"))
            continue
        if i < len(families) and families[i] != seen[-1]:
            found.append(wrong(field, address, f"expected an {families[i]} value as indicated by `ipFamilies[{i}]`"))
        elif i >= len(families) and seen[-1] not in offered:
            found.append(wrong(field, addresses, f"{seen[-1]} is not configured on this cluster"))
    twice = len(set(seen)) < len(seen) or len(set(families)) < len(families) <= 2
    if not found and twice:
        found.append(wrong("spec.ipFamilies", families or seen, "two addresses must be of different families"))
    return found


def _offers(policy: str, families: list[Any], offered: Sequence[str]) -> list[Cause]:
    found = []
    if policy == _REQUIRE and len(offered) < 2:
        found.append(wrong(_POLICY, policy, "this cluster is not configured for dual-stack services"))
    for i, name in enumerate(families):
        if name not in offered:
            found.append(wrong(f"spec.ipFamilies[{i}]", name, "not configured on this cluster"))
    return found


Network = IPv4Network | IPv6Network

_FEW_PORTS = 8  # that are drawn one by one
_HEALTH_PORT, _TAKEN = "spec.healthCheckNodePort", "provided port is already allocated"
_FIRST_HOLDER = "default/kubernetes"  # owner of the first address of the range, where pods reach this server


class ServiceAddresses:
    """A plugin of the allocation phase. It also handles deletions, which release the allocations."""

    def __init__(self, store: WatchCache, networks: Sequence[Network], node_ports: range) -> None:
        self.allocations = Allocations(store, {str(networks[0].network_address + 1): _FIRST_HOLDER})
        self._ranges = ServiceRanges(store, networks)
        self._decision = ServiceAllocation(self._ranges.by_family, node_ports, self.allocations)
        self._follows = False

    async def allocate(self, attributes: Attributes) -> Sequence[Write]:
        """Set the allocated values of the service; return the rows to write with it. Raises `Invalid` for values that
        are not available, and `InternalError` if a range is exhausted.
        """
        self._follow()
        key, old = f"{attributes.namespace}/{attributes.name}", attributes.old_object or {}
        before = items_of_tree(old)
        if attributes.object is None:
            return self.allocations.writes(key, before, ())
        tree = attributes.object
        spec = dict(tree.get("spec") or {})
        problems = self._decision.allot(spec, old.get("spec") or {}, key)
        if problems:
            raise invalid(attributes.kind.group, attributes.kind.kind, attributes.name, problems)
        tree["spec"] = spec
        return self.allocations.writes(key, before, items_of_tree(tree))

    def _follow(self) -> None:
        if not self._follows:
            self._follows = True
            self._ranges.follow()


@dataclass(frozen=True, slots=True)
class ServiceAllocation:
    """Decides the allocations of a Service. `networks` by family, the cluster's default family first, and the preferred
    network of a family first; pure except for random numbers.
    """

    networks: Mapping[str, Sequence[Network]]
    node_ports: range
    allocations: Allocations

    def allot(self, spec: Tree, old: Tree, key: str) -> list[Cause]:
        """Set, in place, the allocations of the Service `key`; return the errors of requested values that are not
        available.

        `old` is its previous spec, empty if it is new.
        """
        found = choose(spec, old, tuple(self.networks))
        if not found and needs_addresses(spec) and not is_headless(spec):
            found = self._give_addresses(spec, key)
        if not found and may_have_node_ports(spec):
            found = self._give_ports(spec, key)
        return found

    def _give_addresses(self, spec: Tree, key: str) -> list[Cause]:
        given = list(spec.get("clusterIPs") or ())
        refused = [why for address in given if (why := self._refuses_address(address, key))]
        if refused:
            return [wrong("spec.clusterIPs", given, why) for why in refused]
        given += [self._draw_address(name, key) for name in spec["ipFamilies"][len(given) :]]
        spec["clusterIP"], spec["clusterIPs"] = given[0], given
        return []

    def _refuses_address(self, address: str, key: str) -> str:
        parsed, networks = ip_address(address), self.networks.get(family(address), ())
        if self.allocations.holds(str(parsed), key):
            return ""
        failed = f"failed to allocate IP {address}: "
        if not self.allocations.is_free(str(parsed), key):
            return failed + "provided IP is already allocated"
        if not any(int(parsed) in addresses(network) for network in networks):
            known = ", ".join(map(str, networks)) or "empty"
            return f"{failed}the provided IP ({address}) is not in the valid range. The range of valid IPs is {known}"
        return ""

    def _draw_address(self, name: str, key: str) -> str:
        make: Callable[[int], Any] = IPv4Address if name == "IPv4" else IPv6Address
        for network in self.networks[name]:
            found = addresses(network).draw(lambda n: self.allocations.is_spare(str(make(n)), key), _below)
            if found is not None:
                return str(make(found))
        raise _full("a serviceIP")

    def _give_ports(self, spec: Tree, key: str) -> list[Cause]:
        """Allocate node ports. Ports with the same number share a node port, as for a service over TCP and UDP."""
        wanted = [dict(port) for _, port in dicts(spec.get("ports"))]
        asked = [(f"spec.ports[{i}].nodePort", port.get("nodePort")) for i, port in enumerate(wanted)]
        mine, health = {n for _, n in asked if n}, spec.get("healthCheckNodePort")
        if needs_health_port(spec):
            asked.append((_HEALTH_PORT, health))
        found = [wrong(field, n, why) for field, n in asked if n and (why := self._refuses_port(n, key))]
        if health in mine:
            found.append(wrong(_HEALTH_PORT, health, _TAKEN))
        if found:
            return found
        if (needed := _needed_ports(spec, wanted)) > len(self.node_ports):
            why = f"takes {needed} node ports, and the range has only {len(self.node_ports)}"
            return [wrong("spec.ports", len(wanted), why)]
        mine |= {health} if health else set()
        draw = partial(self._draw_port, key, mine, self._drawn_at_once(key, mine, needed))
        if needs_node_ports(spec):
            shared = {port["port"]: port["nodePort"] for port in wanted if port.get("nodePort")}
            for port in wanted:
                if not port.get("nodePort"):
                    port["nodePort"] = shared.get(port["port"]) or draw("a nodePort")
                    shared[port["port"]] = port["nodePort"]
        if needs_health_port(spec) and not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = draw("a HealthCheck NodePort 0")
        spec["ports"] = wanted
        return []

    def _refuses_port(self, number: int, key: str) -> str:
        if self.allocations.holds(number, key):
            return ""
        if not self.allocations.is_free(number, key):
            return _TAKEN
        if number not in self.node_ports:
            known = f"{self.node_ports.start}-{self.node_ports.stop - 1}"
            return f"provided port is not in the valid range. The range of valid ports is {known}"
        return ""

    def _drawn_at_once(self, key: str, mine: set[int], needed: int) -> list[int]:
        """Return random ports for a service with many ports; searching for each one separately takes quadratic time."""
        if needed - len(mine) <= _FEW_PORTS:
            return []
        spare = partial(self.allocations.is_spare, service=key)
        return ports(self.node_ports).draw_many(needed - len(mine), lambda n: n not in mine and spare(n), _below)

    def _draw_port(self, key: str, mine: set[int], drawn: list[int], what: str) -> int:
        if drawn:
            found: int | None = drawn.pop()
        else:
            found = ports(self.node_ports).draw(lambda n: n not in mine and self.allocations.is_spare(n, key), _below)
        if found is None:
            raise _full(what)
        mine.add(found)
        return found


def _needed_ports(spec: Tree, wanted: Sequence[Tree]) -> int:
    """Return the number of node ports that a Service will have. A smaller range can never be sufficient."""
    given = {port["port"]: port["nodePort"] for port in wanted if port.get("nodePort")}
    drawn = {port["port"] for port in wanted} - set(given) if needs_node_ports(spec) else set()
    return len(set(given.values())) + len(drawn) + needs_health_port(spec)


def _full(what: str) -> InternalError:
    return internal_error(f"failed to allocate {what}: range is full")


def _below(count: int) -> int:
    """Return a number by chance, less than `count`."""
    return min(int(random_source().uniform(0, count)), count - 1)
