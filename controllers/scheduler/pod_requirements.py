"""Reads the requirements of a pod from its JSON, cached for all pods with equal ones; pure.

Pods of a replica set differ only in names. The relevant part of the JSON is cut out as bytes, which are the cache key
of `requirements_of`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from controller_manager.common.api.core import RESTART_ALL_CONTAINERS, NodeSelector, NodeSelectorTerm, Pod, Toleration
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import EMPTY_RAW, Model
from controller_manager.common.api.pod_resources import pod_requests
from controller_manager.common.api.scheduling import (
    NodeMatcher,
    NodeTerm,
    RequiredNodeAffinity,
    SchedulingDirectives,
    required_nodes,
)
from controller_manager.common.api.selectors import LabelSelector, LabelSelectorSpec, Requirement

from .requirements import AffinityTerm, Amounts, HostPort, PreferredNodes, Requirements, SpreadConstraint

DEFAULT_SCHEDULER = "default-scheduler"
_DO_NOT_SCHEDULE = "DoNotSchedule"
_REMEMBERED = 10_000
# Requests assumed for containers without any in scores: a tenth of a CPU, 200 MiB.
_ASSUMED = {"cpu": "100m", "memory": "200Mi"}


# The relevant fields of a pod. Those that are only passed on stay JSON.


class _Metadata(Model):
    namespace: str = ""
    labels: msgspec.Raw = EMPTY_RAW


class _Container(Model):
    name: str = ""
    image: str = ""
    ports: msgspec.Raw = EMPTY_RAW
    resources: msgspec.Raw = EMPTY_RAW
    restart_policy: str = ""
    restart_policy_rules: msgspec.Raw = EMPTY_RAW


class _Spec(Model):
    scheduler_name: str = DEFAULT_SCHEDULER
    scheduling_gates: msgspec.Raw = EMPTY_RAW
    priority: int = 0
    preemption_policy: str = ""
    node_selector: msgspec.Raw = EMPTY_RAW
    affinity: msgspec.Raw = EMPTY_RAW
    tolerations: msgspec.Raw = EMPTY_RAW
    topology_spread_constraints: msgspec.Raw = EMPTY_RAW
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resources: msgspec.Raw = EMPTY_RAW
    overhead: msgspec.Raw = EMPTY_RAW


class _ContainerStatus(Model):
    name: str = ""
    resources: msgspec.Raw = EMPTY_RAW
    allocated_resources: msgspec.Raw = EMPTY_RAW


class _ConditionOfPod(Model):
    type: str = ""
    reason: str = ""


class _Status(Model):
    conditions: tuple[_ConditionOfPod, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


class _Cut(Model):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


# The same fields, decoded.


class _Port(Model):
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class _RestartRule(Model):
    action: str = ""


class _ReadContainer(Model):
    image: str = ""
    ports: tuple[_Port, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[_RestartRule, ...] = ()


class _PodTerm(Model):
    label_selector: LabelSelectorSpec | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelectorSpec | None = None
    topology_key: str = ""


class _WeightedPodTerm(Model):
    weight: int = 0
    pod_affinity_term: _PodTerm = _PodTerm()


class _PodAffinity(Model):
    required: tuple[_PodTerm, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[_WeightedPodTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _WeightedNodeTerm(Model):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class _NodePreferences(Model):
    preferred: tuple[_WeightedNodeTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Model):
    node_affinity: _NodePreferences | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Constraint(Model):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = _DO_NOT_SCHEDULE
    label_selector: LabelSelectorSpec | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class _Gate(Model):
    name: str = ""


class _ReadSpec(Model):
    scheduler_name: str = DEFAULT_SCHEDULER
    scheduling_gates: tuple[_Gate, ...] = ()
    priority: int = 0
    preemption_policy: str = ""
    affinity: _Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[_Constraint, ...] = ()
    containers: tuple[_ReadContainer, ...] = ()
    init_containers: tuple[_ReadContainer, ...] = ()


class _ReadMetadata(Model):
    labels: Mapping[str, str] = {}


class _Read(Model):
    metadata: _ReadMetadata = _ReadMetadata()
    spec: _ReadSpec = _ReadSpec()


class _Directed(Model):
    spec: SchedulingDirectives = SchedulingDirectives()


_CUT, _READ, _DIRECTED = Decoder(_Cut), Decoder(_Read), Decoder(_Directed)
_ENCODE = msgspec.json.Encoder().encode
_RESIZING = "PodResize"
_ALL_RESTART = frozenset({RESTART_ALL_CONTAINERS})


def requirements_of(pod: Pod) -> Requirements:
    """Return the requirements of a pod; the same object for equal pods. Raises `msgspec.ValidationError`."""
    cut = _CUT.decode(pod.raw)
    conditions = tuple(one for one in cut.status.conditions if one.type.startswith(_RESIZING))
    status = msgspec.structs.replace(cut.status, conditions=conditions)
    return _requirements(_ENCODE(msgspec.structs.replace(cut, status=status)))


def are_alike(before: Pod, after: Pod) -> bool:
    """Return whether two states of a pod certainly have equal requirements, by a quick check."""
    if before.metadata.generation != after.metadata.generation or before.metadata.labels != after.metadata.labels:
        return False
    return before.spec == after.spec and not (_is_resized(before) or _is_resized(after))


def _is_resized(pod: Pod) -> bool:
    return any(one.type.startswith(_RESIZING) for one in pod.status.conditions)


class _Nomination(Model):
    nominated_node_name: str = ""


class _Nominated(Model):
    status: _Nomination = _Nomination()


_NOMINATED = Decoder(_Nominated)


def nominated_node(pod: Pod) -> str:
    """Return the nominated node in a pod's status, or an empty string."""
    return _NOMINATED.decode(pod.raw).status.nominated_node_name if b'"nominatedNodeName"' in pod.raw else ""


@lru_cache(_REMEMBERED)
def _requirements(cut: bytes) -> Requirements:
    read, directives = _READ.decode(cut), _DIRECTED.decode(cut).spec
    tree: dict[str, Any] = msgspec.json.decode(cut)
    spec, labels = read.spec, read.metadata.labels
    namespace = tree.get("metadata", {}).get("namespace", "")
    affinity = spec.affinity or _Affinity()
    near, far = affinity.pod_affinity or _PodAffinity(), affinity.pod_anti_affinity or _PodAffinity()
    nodes = affinity.node_affinity or _NodePreferences()
    spread = [_constraint(one, labels) for one in spec.topology_spread_constraints]
    preferred = [_term(one.pod_affinity_term, namespace, one.weight) for one in near.preferred]
    preferred += [_term(one.pod_affinity_term, namespace, -one.weight) for one in far.preferred]
    sidecars = [one for one in spec.init_containers if one.restart_policy == "Always"]
    return Requirements(
        namespace=namespace,
        labels=labels,
        scheduler=spec.scheduler_name,
        gates=tuple(gate.name for gate in spec.scheduling_gates),
        priority=spec.priority,
        preempts=spec.preemption_policy != "Never",
        requests=Amounts.of(pod_requests(tree)),
        weight=Amounts.of(pod_requests(_assuming(tree))),
        ports=tuple(dict.fromkeys(_host_ports([*spec.containers, *sidecars]))),
        images=tuple(_image_name(one.image) for one in (*spec.init_containers, *spec.containers)),
        tolerations=spec.tolerations,
        node_affinity=RequiredNodeAffinity.of(directives),
        selects_nodes=bool(directives.node_selector or directives.affinity),
        only_nodes=_named(required_nodes(directives.affinity)),
        preferred_nodes=tuple(PreferredNodes(one.weight, _node_term(one.preference)) for one in nodes.preferred),
        constraints=tuple(one for hard, one in spread if hard),
        preferred_spread=tuple(one for hard, one in spread if not hard),
        spreads_itself=bool(spread),
        affinity=tuple(_term(one, namespace) for one in near.required),
        anti_affinity=tuple(_term(one, namespace) for one in far.required),
        preferred_affinity=tuple(preferred),
        node_features=_node_features((*spec.containers, *spec.init_containers)),
    )


def _node_features(containers: Iterable[_ReadContainer]) -> frozenset[str]:
    """Return the node features that containers need (KEP-5328)."""
    actions = {rule.action for one in containers for rule in one.restart_policy_rules}
    return _ALL_RESTART if "RestartAllContainers" in actions else frozenset()


def _image_name(image: str) -> str:
    """Return the name of an image with its tag, `latest` by default."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _assuming(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a pod whose containers all request CPU and memory."""

    def filled(containers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**one, "resources": {"requests": {**_ASSUMED, **_requests(one)}}} for one in containers]

    spec = tree.get("spec", {})
    every = {name: filled(spec.get(name) or ()) for name in ("containers", "initContainers")}
    return {**tree, "spec": {**spec, **every}}


def _requests(container: Mapping[str, Any]) -> Mapping[str, str]:
    return (container.get("resources") or {}).get("requests") or {}


def _host_ports(containers: Iterable[_ReadContainer]) -> list[HostPort]:
    every = (port for one in containers for port in one.ports if port.host_port > 0)
    return [HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port) for port in every]  # noqa: S104


def _named(selector: NodeSelector | None) -> frozenset[str] | None:
    """Return the node names of a node selector, if each term has some."""
    names: set[str] = set()
    for term in selector.node_selector_terms if selector is not None else ():
        wanted = [one.values for one in term.match_fields if (one.key, one.operator) == ("metadata.name", "In")]
        if not wanted:
            return None
        names.update(wanted[0])
    return frozenset(names) if names else None


def _node_term(term: NodeSelectorTerm) -> NodeTerm | None:
    terms = NodeMatcher.of(NodeSelector(node_selector_terms=(term,))).terms
    return terms[0] if terms else None


def _constraint(one: _Constraint, labels: Mapping[str, str]) -> tuple[bool, SpreadConstraint]:
    """Return a constraint, and whether it is required."""
    selector = _selector(one.label_selector)
    if selector is not None:
        same = tuple(Requirement(key, "in", (labels[key],)) for key in one.match_label_keys if key in labels)
        selector = LabelSelector((*selector.requirements, *same))
    return one.when_unsatisfiable == _DO_NOT_SCHEDULE, SpreadConstraint(
        topology_key=one.topology_key,
        max_skew=one.max_skew,
        selector=selector,
        min_domains=one.min_domains or 1,
        honors_affinity=one.node_affinity_policy != "Ignore",
        honors_taints=one.node_taints_policy == "Honor",
    )


def _term(term: _PodTerm, namespace: str, weight: int = 0) -> AffinityTerm:
    """Return a term. The API server has merged `matchLabelKeys` and `mismatchLabelKeys` into its selector."""
    own = not (term.namespaces or term.namespace_selector)
    return AffinityTerm(
        namespaces=frozenset({namespace} if own else term.namespaces),
        of_namespaces=_selector(term.namespace_selector),
        selector=_selector(term.label_selector),
        topology_key=term.topology_key,
        weight=weight,
    )


def _selector(spec: LabelSelectorSpec | None) -> LabelSelector | None:
    """Return a selector. None, for a missing or invalid one, selects nothing."""
    if spec is None:
        return None
    try:
        return spec.selector()
    except KeyError:
        return None
