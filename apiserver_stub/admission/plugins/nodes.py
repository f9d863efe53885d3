"""Plugins for nodes: TaintNodesByCondition, PodTopologyLabels, and two that check pod resizes.

| plugin                       | request               | effect                                                        |
|------------------------------|-----------------------|---------------------------------------------------------------|
| TaintNodesByCondition        | a new node            | tainted not-ready until a controller sees that it is ready    |
| PodTopologyLabels            | a pod, a binding      | gets zone and region labels of the node (KEP-4742)            |
| NodeDeclaredFeatureValidator | a pod that is resized | rejected unless the node declares the feature (KEP-5328)      |
| PodResizeValidator           | a pod that is resized | rejected if it can never fit, or the node OS does not match   |
"""

from collections.abc import Iterator
from decimal import ROUND_UP, Decimal
from functools import partial

import orjson

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.kinds.defaults.pods import total
from apiserver_stub.kinds.values.trees import dicts, get_in, put_in
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.errors import Cause
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.quantity import parse
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.log.formats import quote

_NODES, _PODS = "nodes", ("pods",)
_TAINTS, _NODE_NAME, _LABELS = ("spec", "taints"), ("spec", "nodeName"), ("metadata", "labels")
_NOT_READY = {"key": f"node.{PLATFORM_DOMAIN}/not-ready", "effect": "NoSchedule"}
_TOPOLOGY = tuple(f"topology.{PLATFORM_DOMAIN}/{name}" for name in ("zone", "region"))
_SYSTEM = f"{PLATFORM_DOMAIN}/os"
_POD_RESIZE, _INIT_RESIZE = "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"


def taint_nodes_by_condition(_parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin TaintNodesByCondition."""
    return AdmissionPlugin("TaintNodesByCondition", mutating=(Rule(taint_new_node, ("create",), (_NODES,)),))


def taint_new_node(attributes: Attributes) -> None:
    """Add the not-ready taint to a new node, unless it has it."""
    node = attributes.tree
    taints = get_in(node, _TAINTS) or []
    if not any({name: one.get(name) for name in _NOT_READY} == _NOT_READY for _, one in dicts(taints)):
        put_in(node, _TAINTS, [*taints, dict(_NOT_READY)])


def pod_topology_labels(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin PodTopologyLabels."""
    rules = (
        Rule(partial(label_pod, parts.store), ("create",), _PODS),
        Rule(partial(label_binding, parts.store), ("create",), _PODS, ("binding",)),
    )
    return AdmissionPlugin("PodTopologyLabels", mutating=rules)


def label_pod(store: WatchCache, attributes: Attributes) -> None:
    """Add the topology labels of the node to a new pod that is already bound."""
    if name := get_in(attributes.tree, _NODE_NAME):
        _add_labels(attributes.tree, store.get(_NODES, name))


def label_binding(store: WatchCache, attributes: Attributes) -> None:
    """Add the topology labels of the node to a binding; they are copied to the pod."""
    target = attributes.tree.get("target") or {}
    if target.get("kind") == "Node":
        _add_labels(attributes.tree, store.get(_NODES, target.get("name", "")))


def _add_labels(tree: Tree, node: Row | None) -> None:
    added = {} if node is None else {key: node.labels[key] for key in _TOPOLOGY if key in node.labels}
    if added:
        put_in(tree, _LABELS, {**(get_in(tree, _LABELS) or {}), **added})


def node_declared_feature_validator(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin NodeDeclaredFeatureValidator."""
    rule = Rule(partial(check_features, parts.store), ("update",), _PODS, ("resize",))
    return AdmissionPlugin("NodeDeclaredFeatureValidator", validating=(rule,))


def check_features(store: WatchCache, attributes: Attributes) -> None:
    """Raises `Forbidden` for a change that requires a feature the node does not declare."""
    new, old = attributes.tree, attributes.old_object or {}
    if not _is_bound_pod_changed(new, old):
        return
    needed = list(_features(new["spec"], old["spec"]))
    if not needed:
        return
    node = _node_of(store, attributes)
    declared = get_in(orjson.loads(node.data), ("status", "declaredFeatures")) or ()
    if lacking := [name for name in needed if name not in declared]:
        why = f"pod update requires features {', '.join(lacking)} which are not available on node {quote(node.name)}"
        raise attributes.refused(why)


def _features(new: Tree, old: Tree) -> Iterator[str]:
    """Yield the features of nodes that a change of resources needs."""
    if new.get("resources") != old.get("resources"):
        yield _POD_RESIZE
    pairs = zip(new.get("initContainers", ()), old.get("initContainers", ()), strict=False)
    if any(now.get("resources") != was.get("resources") for now, was in pairs if was.get("restartPolicy") != "Always"):
        yield _INIT_RESIZE


def pod_resize_validator(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin PodResizeValidator."""
    rule = Rule(partial(check_resize, parts.store), ("update",), _PODS, ("resize",))
    return AdmissionPlugin("PodResizeValidator", validating=(rule,))


async def check_resize(store: WatchCache, attributes: Attributes) -> None:
    """Raises `Forbidden` for a resize that the node of the pod does not support."""
    pod = attributes.tree
    if not _is_bound_pod_changed(pod, attributes.old_object or {}):
        return
    node = _node_of(store, attributes)
    system = node.labels.get(_SYSTEM, "linux")
    if system != "linux":
        why = f"pod resize is only supported on linux nodes, node {quote(node.name)} is {quote(system)}"
        raise attributes.refused(why, Cause(reason="UnsupportedPlatform"))
    allocatable = get_in(orjson.loads(node.data), ("status", "allocatable")) or {}
    if lacking := list(_exceeding(pod["spec"], allocatable)):
        why = f"node didn't have enough allocatable resources: {'; '.join(lacking)}"
        raise attributes.refused(why, Cause(reason="NodeCapacity"))


def _exceeding(spec: Tree, allocatable: Tree) -> Iterator[str]:
    """Yield the requests of a pod that exceed the allocatable resources of the node, in millicores and bytes."""
    asked = {**total(spec, "requests"), **(get_in(spec, ("resources", "requests")) or {})}
    overhead = spec.get("overhead") or {}
    for name, unit in (("cpu", 1000), ("memory", 1)):
        wanted = _number(asked, name) + _number(overhead, name)
        there = _number(allocatable, name)
        if wanted > there:
            yield f"{name}, requested: {_whole(wanted * unit)}, allocatable: {_whole(there * unit)}"


def _number(amounts: Tree, name: str) -> Decimal:
    return parse(amounts.get(name, "0")).number


def _whole(number: Decimal) -> Decimal:
    return number.to_integral_value(ROUND_UP)


def _is_bound_pod_changed(new: Tree, old: Tree) -> bool:
    """Return whether the spec of a pod on a node changes."""
    return bool(get_in(new, _NODE_NAME)) and new["metadata"].get("generation") != old["metadata"].get("generation")


def _node_of(store: WatchCache, attributes: Attributes) -> Row:
    name = get_in(attributes.tree, _NODE_NAME)
    node = store.get(_NODES, name)
    if node is None:
        raise attributes.refused(f"node {quote(name)} not found")
    return node
