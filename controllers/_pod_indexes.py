"""Pods by index: which ones a service selects, which services one concerns, which are bound to a node."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from controller_manager.api.core import SERVICES, Pod, Service
from controller_manager.api.resource import key_of
from controller_manager.controller import Change, Informer, Informers, Key

_LABEL = "label"
_SELECTOR = "selector"
_NODE = "node"


def _labels_of(pod: Pod) -> Iterator[str]:
    space, labels = pod.metadata.namespace, pod.metadata.labels or {}
    return (f"{space}/{name}={value}" for name, value in labels.items())


def _selector_of(service: Service) -> tuple[str, ...]:
    """One label of the selector stands for it: the one whose value says most."""
    selector = service.spec.selector
    if not selector:
        return ()
    name, value = max(selector.items(), key=lambda label: (len(label[1]), label))
    return (f"{service.metadata.namespace}/{name}={value}",)


# What a controller that uses the functions below declares of its watches.
PODS_BY_LABEL: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_LABEL: _labels_of})
SERVICES_BY_SELECTOR: Mapping[str, Callable[[Service], Iterable[str]]] = MappingProxyType({_SELECTOR: _selector_of})


def pods_of(pods: Informer[Pod], service: Service) -> list[Pod]:
    """The pods that a service with a selector selects."""
    selector, space = service.spec.selector or {}, service.metadata.namespace
    few = min((pods.by_index(_LABEL, f"{space}/{name}={value}") for name, value in selector.items()), key=len)
    return few if len(selector) == 1 else [pod for pod in few if _selects(selector, pod.metadata.labels)]


def services_for(services: Informer[Service], pod: Pod) -> Iterator[Key]:
    """The services that select a pod."""
    for value in _labels_of(pod):
        for service in services.by_index(_SELECTOR, value):
            if _selects(service.spec.selector or {}, pod.metadata.labels):
                yield key_of(service)


def services_of_pod(facts: Callable[[Pod], object], informers: Informers, change: Change[Pod]) -> Iterator[Key]:
    """The services that select a pod or did until now, if one of those `facts` has changed that matter to them."""
    before, after = change.before, change.after
    if before is not None and after is not None and facts(before) == facts(after):
        return
    services = informers.get(SERVICES)
    if after is not None:
        yield from services_for(services, after)
    if before is not None and (after is None or before.metadata.labels != after.metadata.labels):
        yield from services_for(services, before)


def _selects(selector: Mapping[str, str], labels: Mapping[str, str] | None) -> bool:
    return labels is not None and selector.items() <= labels.items()


def _node_of(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


# What a controller that uses the function below declares of its watch of pods.
PODS_BY_NODE: Mapping[str, Callable[[Pod], Iterable[str]]] = MappingProxyType({_NODE: _node_of})


def pods_on(pods: Informer[Pod], node: str) -> list[Pod]:
    """The pods bound to the node of that name, whether there is such a node or not."""
    return pods.by_index(_NODE, node)
