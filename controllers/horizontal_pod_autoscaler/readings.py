"""What to ask the metrics APIs for each metric, and what their answers say; pure."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from controller_manager.api.autoscaling import MetricIdentifier, MetricSelector, MetricSpec, ObjectSource
from controller_manager.api.decode import Decoder
from controller_manager.api.metrics import (
    CUSTOM_METRICS,
    CUSTOM_VALUE,
    EXTERNAL_METRICS,
    EXTERNAL_VALUE,
    METRICS_LIST,
    POD_METRICS,
    RESOURCE_METRICS,
    ContainerMetrics,
    PodMetrics,
)

from .amounts import LARGEST, milli
from .pods import CannotCompute, Sample

_SIGNS = {"In": "in", "NotIn": "notin"}

Samples = Mapping[str, Sample]
_Form = TypeVar("_Form")


class Query(NamedTuple):
    """What is asked of an API group: a path below its version, and selectors."""

    group: str
    path: str
    selectors: tuple[tuple[str, str], ...] = ()


def query_of(spec: MetricSpec, namespace: str, selector: str, described: str = "") -> Query | None:
    """What to ask for a metric of the pods that `selector` finds; None for one of an unknown type.

    `described` is the resource of the object that an object metric describes, as `plural.group`. An object is one of
    the namespace of the autoscaler, or that namespace itself.
    """
    space = f"namespaces/{namespace}"
    if spec.resource or spec.container_resource:
        return Query(RESOURCE_METRICS, f"{space}/pods", (("labelSelector", selector),))
    if spec.pods:
        chosen = ("labelSelector", selector), *_selecting("metricLabelSelector", spec.pods.metric)
        return Query(CUSTOM_METRICS, f"{space}/pods/*/{spec.pods.metric.name}", chosen)
    if spec.object:
        place = f"{space}/metrics" if _is_namespace(spec.object) else f"{space}/{described}/{_name(spec.object)}"
        selected = _selecting("metricLabelSelector", spec.object.metric)
        return Query(CUSTOM_METRICS, f"{place}/{spec.object.metric.name}", selected)
    if spec.external:
        metric = spec.external.metric
        return Query(EXTERNAL_METRICS, f"{space}/{metric.name}", _selecting("labelSelector", metric))
    return None


def _is_namespace(source: ObjectSource) -> bool:
    return source.described_object.kind == "Namespace" and not source.described_object.group


def _name(source: ObjectSource) -> str:
    return source.described_object.name


def _selecting(parameter: str, metric: MetricIdentifier) -> tuple[tuple[str, str], ...]:
    text = text_of(metric.selector)
    return ((parameter, text),) if text else ()


def text_of(selector: MetricSelector | None) -> str:
    """A label selector as text."""
    if selector is None:
        return ""
    terms = [(name, f"{name}={value}") for name, value in (selector.match_labels or {}).items()]
    for each in selector.match_expressions:
        word = _SIGNS.get(each.operator)
        bare = f"!{each.key}" if each.operator == "DoesNotExist" else each.key
        terms.append((each.key, f"{each.key} {word} ({','.join(sorted(each.values))})" if word else bare))
    return ",".join(text for _, text in sorted(terms))


def resource_samples(body: bytes, resource: str, container: str = "") -> Samples:
    """What each pod uses of a resource, or one container of each. Raises CannotCompute when it says nothing."""
    items = _each(POD_METRICS, body)
    if not items:
        raise CannotCompute("no metrics returned for these pods by the resource metrics API")
    found: dict[str, Sample] = {}
    for pod in items:
        used = _use(pod, resource, container)
        if used is not None:
            found[pod.metadata.name] = Sample(used, pod.timestamp, pod.window)
    return found


def _use(pod: PodMetrics, resource: str, container: str) -> int | None:
    chosen: tuple[ContainerMetrics, ...] = pod.containers
    if container:
        chosen = tuple(each for each in pod.containers if each.name == container)
        if not chosen:
            raise CannotCompute(f"there are no metrics of container {container} of pod {pod.metadata.name}")
    if not chosen or any(resource not in each.usage for each in chosen):
        return None
    return sum(milli(each.usage[resource]) for each in chosen)


def pods_samples(body: bytes) -> Samples:
    """A custom metric of each pod. Raises CannotCompute when there is none."""
    items = _each(CUSTOM_VALUE, body)
    if not items:
        raise CannotCompute("no metrics returned for these pods by the custom metrics API")
    return {each.described_object.name: Sample(milli(each.value)) for each in items}


def object_value(body: bytes) -> int:
    """A custom metric of one object, in thousandths."""
    items = _all(CUSTOM_VALUE, body)
    if len(items) != 1:
        raise CannotCompute(f"the custom metrics API has {len(items)} values for one object")
    return milli(items[0].value)


def external_value(body: bytes) -> int:
    """The sum of all series of an external metric, in thousandths."""
    items = _all(EXTERNAL_VALUE, body)
    if not items:
        raise CannotCompute("no metrics returned by the external metrics API")
    return min(LARGEST, sum(milli(each.value) for each in items))


def _all(decoder: Decoder[_Form], body: bytes) -> list[_Form]:
    """The items, of which none may be missing."""
    return [_decode(decoder, item) for item in _decode(METRICS_LIST, body).items]


def _each(decoder: Decoder[_Form], body: bytes) -> list[_Form]:
    """The items that can be read; if there are any, a pod whose item can't is one without metrics."""
    found, problem = [], None
    for item in _decode(METRICS_LIST, body).items:
        try:
            found.append(_decode(decoder, item))
        except CannotCompute as error:
            problem = error
    if not found and problem is not None:
        raise problem
    return found


def _decode(decoder: Decoder[_Form], body: bytes | msgspec.Raw) -> _Form:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CannotCompute(f"the answer of the metrics API is unreadable: {error}") from None
