"""Choose the families of addresses of a Service, by its wishes and what the cluster offers (KEP-563); pure.

What decides                                            The families
  headless without a selector                             those asked for; without a wish both, whatever is offered
  the policy SingleStack                                  the one asked for, else the cluster's first
  PreferDualStack, RequireDualStack                       those asked for, and the other one where it is offered
An update that wants dual stack as before keeps what it has, however the cluster has changed meanwhile.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.error_list import shown
from apiserver_stub.kinds.service_spec import is_headless, needs_addresses
from controller_manager.api.errors import Cause

_FAMILIES = ("IPv4", "IPv6")
_SINGLE, _PREFER, _REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
_POLICY = "spec.ipFamilyPolicy"


def family(address: str) -> str:
    """Return the family of an address."""
    return f"IPv{ip_address(address).version}"


def wrong(field: str, value: Any, why: str) -> Cause:
    """Return the cause that a value can't be had here."""
    return Cause(reason="FieldValueInvalid", message=f"Invalid value: {shown(value)}: {why}", field=field)


def choose(spec: Tree, old: Tree, offered: Sequence[str]) -> list[Cause]:
    """Settle `ipFamilyPolicy`, `ipFamilies` and how many `clusterIPs` there may be, in place; returns all problems.

    `old` is the spec before, empty for a new Service; what the cluster offers begins with its first choice.
    """
    if not needs_addresses(spec):
        return []
    before = old if needs_addresses(old) else {}
    spec["ipFamilyPolicy"] = policy = spec.get("ipFamilyPolicy") or before.get("ipFamilyPolicy") or _unsaid(spec)
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


def _unsaid(spec: Tree) -> str:
    return _REQUIRE if is_headless(spec) and not spec.get("selector") else _SINGLE


def _list(spec: Tree, name: str) -> list[Any]:
    return list(spec.get(name) or ())


def _prefers_as_before(spec: Tree, before: Tree) -> bool:
    if spec["ipFamilyPolicy"] != _PREFER or before.get("ipFamilyPolicy") != _PREFER or "ipFamilies" not in before:
        return False
    same_families = spec.get("ipFamilies") in (None, [], before["ipFamilies"])
    return same_families and spec.get("clusterIPs") == before.get("clusterIPs")


def _shrink(spec: Tree, before: Tree) -> None:
    """Whoever wants a single stack and says nothing else means the first family."""
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
    """Return the problems of addresses given: each is one, of the family in its place."""
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
