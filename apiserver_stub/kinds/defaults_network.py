"""Default rows of what leads traffic: services, their endpoints, ingress classes and network policies."""

from apiserver_stub.kinds.defaulting import Rows, under, when
from apiserver_stub.kinds.schema import Tree

_EXPOSED = ("NodePort", "LoadBalancer")
_INTERNAL = ("ClusterIP", *_EXPOSED)
_PATIENCE = 10800  # seconds a client stays with the endpoint it was led to


def _target_port(port: Tree) -> None:
    if port.get("targetPort") in (None, 0, ""):
        port["targetPort"] = port.get("port")


def _affinity(spec: Tree) -> None:
    """How long a client stays with an endpoint is said if it stays at all, and never in part."""
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        said = spec.get("sessionAffinityConfig", {}).get("clientIP", {}).get("timeoutSeconds")
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _PATIENCE if said is None else said}}


def _external_policy(spec: Tree) -> str | None:
    exposed = spec["type"] in _EXPOSED or (spec["type"] == "ClusterIP" and "externalIPs" in spec)
    return "Cluster" if exposed else None


def _address_modes(service: Tree) -> None:
    """An address of a load balancer is its own unless it says otherwise."""
    if service["spec"].get("type") == "LoadBalancer":
        for found in service.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
            if "ip" in found:
                found.setdefault("ipMode", "VIP")


def _policy_types(spec: Tree) -> list[str]:
    return ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


_TCP: Rows = (("protocol", "TCP"),)
ENDPOINTS: Rows = under("subsets.ports", _TCP)
ENDPOINT_SLICE: Rows = under("ports", (("name", ""), *_TCP))
INGRESS_CLASS: Rows = under("spec.parameters", (("scope", "Cluster"),))
NETWORK_POLICY: Rows = under("spec", (
    ("policyTypes", _policy_types), ("ingress", (("ports", _TCP),)), ("egress", (("ports", _TCP),)),
))  # fmt: skip
SERVICE: Rows = (
    ("spec", (
        ("type", "ClusterIP"),
        ("sessionAffinity", "None"),
        ("", _affinity),
        ("ports", (("protocol", "TCP"), ("", _target_port))),
        ("internalTrafficPolicy", when("type", _INTERNAL, "Cluster")),
        ("externalTrafficPolicy", _external_policy),
        ("allocateLoadBalancerNodePorts", when("type", ("LoadBalancer",), True)),
    )),
    ("", _address_modes),
)  # fmt: skip
