"""Warnings about Services and endpoint addresses."""

from typing import Any

from apiserver_stub.common.error_list import place
from apiserver_stub.kinds.strategies.services import EXTERNAL, is_headless, needs_addresses
from apiserver_stub.kinds.warnings.common import MOST_ADDRESSES, annotation, of_address, of_range, warning_at
from controller_manager.common.api.tree import Tree

_HINTS = "service.kubernetes.io/topology-aware-hints"
_OURS = frozenset({"endpoint-controller"})
_SLICES = frozenset({"endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"})


def of_service(service: Tree, _old: Tree | None) -> list[str]:
    """Return warnings for fields that the type ignores, deprecated fields, and addresses that are not canonical."""
    spec = service.get("spec") or {}
    kind, messages = spec.get("type", "ClusterIP"), []
    if annotation(service, _HINTS) is not None:
        messages.append(f"the annotation {_HINTS} is deprecated: use service.kubernetes.io/topology-mode")
    headless = kind == "ClusterIP" and is_headless(spec)
    if headless:
        messages += [f"spec.{name} is ignored: the service is headless" for name in _ignored(spec)]
    elif needs_addresses(spec):
        messages += _listed(spec, "clusterIPs")
    messages += _listed(spec, "externalIPs")
    if spec.get("externalIPs") and not headless and kind != EXTERNAL:
        messages.append("spec.externalIPs is deprecated and may be ignored")
    messages += of_address(spec.get("loadBalancerIP", ""), place("spec.loadBalancerIP"))
    for index, text in enumerate((spec.get("loadBalancerSourceRanges") or [])[:MOST_ADDRESSES]):
        messages += of_range(text, (place("spec.loadBalancerSourceRanges"), index))
    if kind == EXTERNAL and spec.get("externalIPs"):
        messages.append(f"spec.externalIPs is ignored: the type of the service is {EXTERNAL}")
    if kind != EXTERNAL and spec.get("externalName"):
        messages.append(f"spec.externalName is ignored: the type of the service is not {EXTERNAL}")
    if spec.get("trafficDistribution") == "PreferClose":
        messages.append(
            warning_at(place("spec.trafficDistribution"), '"PreferClose" is deprecated: use "PreferSameZone"')
        )
    return messages


def _ignored(spec: Tree) -> list[str]:
    ignored = [name for name in ("loadBalancerIP", "externalIPs") if spec.get(name)]
    return [*ignored, "sessionAffinity"] if spec.get("sessionAffinity", "None") != "None" else ignored


def _listed(spec: Tree, name: str) -> list[str]:
    at = place(f"spec.{name}")
    found = (spec.get(name) or [])[:MOST_ADDRESSES]
    return [text for i, value in enumerate(found) for text in of_address(value, (at, i))]


def of_endpoints(endpoints: Tree, _old: Tree | None) -> list[str]:
    """Return warnings for addresses that are not canonical, unless the controller wrote them."""
    if _label(endpoints, "endpoints.kubernetes.io/managed-by") in _OURS:
        return []
    messages = []
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        for name in ("addresses", "notReadyAddresses"):
            for number, entry in enumerate(subset.get(name) or ()):
                at = (((place("subsets"), index), name), number)
                messages += of_address(entry.get("ip", ""), (at, "ip"))
    return messages


def of_slice(endpoint_slice: Tree, old: Tree | None) -> list[str]:
    """Return warnings for FQDN endpoints and addresses that are not canonical, unless a controller wrote them."""
    messages = []
    if old is None and endpoint_slice.get("addressType") == "FQDN":
        messages.append(warning_at(place("addressType"), "FQDN is deprecated"))
    if _label(endpoint_slice, "endpointslice.kubernetes.io/managed-by") in _SLICES:
        return messages
    for index, endpoint in enumerate(endpoint_slice.get("endpoints") or ()):
        for number, text in enumerate(endpoint.get("addresses") or ()):
            messages += of_address(text, (((place("endpoints"), index), "addresses"), number))
    return messages


def _label(tree: Tree, name: str) -> Any:
    return (tree.get("metadata", {}).get("labels") or {}).get(name)
