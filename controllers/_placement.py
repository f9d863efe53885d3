"""Which pods are bound to a node, found through an index."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from controller_manager.api.core import Pod
from controller_manager.controller import Informer

_NODE = "node"


def _node_of(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


# What a controller that uses the function below declares of its watch of pods.
PODS_BY_NODE: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_NODE: _node_of})


def pods_on(pods: Informer[Pod], node: str) -> list[Pod]:
    """The pods bound to the node of that name, whether there is such a node or not."""
    return pods.by_index(_NODE, node)
