"""What of a service may change: addresses and families are added and removed, but the first of each stays."""

from typing import Any

from apiserver_stub.kinds.error_list import IMMUTABLE, ErrorList, place
from apiserver_stub.kinds.schema import Tree

_ONCE = "may not change once set"


def change(new: Tree, old: Tree, found: ErrorList) -> None:
    """An update through the main resource; on the way from or to an external name all is open."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    kind = spec.get("type")
    if "ExternalName" not in (kind, before.get("type")):
        for name in ("clusterIPs", "ipFamilies"):
            _first_stays(name, _values(spec, name), _values(before, name), found)
    if kind == before.get("type") == "LoadBalancer":
        _balancer(spec, before, found)


def _values(spec: Tree, name: str) -> list[Any]:
    first = spec.get("clusterIP")
    return spec.get(name) or ([first] if name == "clusterIPs" and first else [])


def _first_stays(name: str, new: list[Any], old: list[Any], found: ErrorList) -> None:
    at = place(f"spec.{name}")
    for index, (value, before) in enumerate(zip(new, old, strict=False)):
        if value != before and before:
            found.invalid((at, index), new, _ONCE)


def _balancer(new: Tree, old: Tree, found: ErrorList) -> None:
    before = old.get("loadBalancerClass")
    if new.get("loadBalancerClass") != before:
        found.invalid(place("spec.loadBalancerClass"), new.get("loadBalancerClass"), _ONCE)
    local = new.get("externalTrafficPolicy") == old.get("externalTrafficPolicy") == "Local"
    port = old.get("healthCheckNodePort")
    if local and port and new.get("healthCheckNodePort") != port:
        found.forbidden(place("spec.healthCheckNodePort"), IMMUTABLE)
