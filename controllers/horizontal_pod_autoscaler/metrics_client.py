"""Client of the three metrics APIs: builds queries and parses responses.

Each API has its own limits of concurrency and time, so that none blocks the others.
"""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from controller_manager.common.api.autoscaling import MetricIdentifier, MetricSpec, ObjectSource
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.errors import ApiError, NotFound
from controller_manager.common.api.metrics import (
    API_GROUP,
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
from controller_manager.common.api.resource import path_segment
from controller_manager.common.api.selectors import LabelSelectorSpec
from controller_manager.framework import Client
from controller_manager.framework.client.rest_client import Call

from .replicas import LARGEST, CannotCompute, PodMetric, milli

_SIGNS = {"In": "in", "NotIn": "notin"}

PodMetricsInfo = Mapping[str, PodMetric]
_Form = TypeVar("_Form")
# Maximum concurrent queries per API, and the timeouts in seconds for a response and for waiting in the queue.
AT_ONCE = 100
DEADLINE = 10.0
PATIENCE = 60.0
# Maximum characters of an API's error message.
_MOST_WORDS = 1000
# The supported versions of an API, preferred first.
_VERSIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        RESOURCE_METRICS: ("v1beta1",),
        CUSTOM_METRICS: ("v1beta2", "v1beta1"),
        EXTERNAL_METRICS: ("v1beta1",),
    }
)


class MetricsQuery(NamedTuple):
    """A query to an API group: a path below its version, and selectors."""

    group: str
    path: str
    selectors: tuple[tuple[str, str], ...] = ()


def query_of(spec: MetricSpec, namespace: str, selector: str, described: str = "") -> MetricsQuery | None:
    """Return the query for a metric of the pods that `selector` matches; None for an unknown metric type.

    `described` is the resource of the described object as `plural.group`. The object is in the namespace of the
    autoscaler, or is that namespace. Raises `InvalidName`.
    """
    space = f"namespaces/{namespace}"
    if spec.resource or spec.container_resource:
        return MetricsQuery(RESOURCE_METRICS, f"{space}/pods", (("labelSelector", selector),))
    if spec.pods:
        chosen = ("labelSelector", selector), *_selecting("metricLabelSelector", spec.pods.metric)
        return MetricsQuery(CUSTOM_METRICS, f"{space}/pods/*/{path_segment(spec.pods.metric.name)}", chosen)
    if spec.object:
        place = (
            f"{space}/metrics"
            if _is_namespace(spec.object)
            else f"{space}/{described}/{path_segment(_name(spec.object))}"
        )
        selected = _selecting("metricLabelSelector", spec.object.metric)
        return MetricsQuery(CUSTOM_METRICS, f"{place}/{path_segment(spec.object.metric.name)}", selected)
    if spec.external:
        metric = spec.external.metric
        return MetricsQuery(
            EXTERNAL_METRICS, f"{space}/{path_segment(metric.name)}", _selecting("labelSelector", metric)
        )
    return None


def _is_namespace(source: ObjectSource) -> bool:
    return source.described_object.kind == "Namespace" and not source.described_object.group


def _name(source: ObjectSource) -> str:
    return source.described_object.name


def _selecting(parameter: str, metric: MetricIdentifier) -> tuple[tuple[str, str], ...]:
    text = text_of(metric.selector)
    return ((parameter, text),) if text else ()


def text_of(selector: LabelSelectorSpec | None) -> str:
    """Return a label selector as text."""
    if selector is None:
        return ""
    terms = [(name, f"{name}={value}") for name, value in (selector.match_labels or {}).items()]
    for each in selector.match_expressions:
        word = _SIGNS.get(each.operator)
        bare = f"!{each.key}" if each.operator == "DoesNotExist" else each.key
        terms.append((each.key, f"{each.key} {word} ({','.join(sorted(each.values))})" if word else bare))
    return ",".join(text for _, text in sorted(terms))


def resource_samples(body: bytes, resource: str, container: str = "") -> PodMetricsInfo:
    """Return the usage of a resource per pod, or of one container per pod. Raises CannotCompute without data."""
    items = _each(POD_METRICS, body)
    if not items:
        raise CannotCompute("no metrics returned for these pods by the resource metrics API")
    found: dict[str, PodMetric] = {}
    for pod in items:
        used = _use(pod, resource, container)
        if used is not None:
            found[pod.metadata.name] = PodMetric(used, pod.timestamp, pod.window)
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


def pods_samples(body: bytes) -> PodMetricsInfo:
    """Return a custom metric per pod. Raises CannotCompute without data."""
    items = _each(CUSTOM_VALUE, body)
    if not items:
        raise CannotCompute("no metrics returned for these pods by the custom metrics API")
    return {each.described_object.name: PodMetric(milli(each.value)) for each in items}


def object_value(body: bytes) -> int:
    """Return a custom metric of one object, in thousandths."""
    items = _all(CUSTOM_VALUE, body)
    if len(items) != 1:
        raise CannotCompute(f"the custom metrics API has {len(items)} values for one object")
    return milli(items[0].value)


def external_value(body: bytes) -> int:
    """Return the sum of all series of an external metric, in thousandths."""
    items = _all(EXTERNAL_VALUE, body)
    if not items:
        raise CannotCompute("no metrics returned by the external metrics API")
    return min(LARGEST, sum(milli(each.value) for each in items))


def _all(decoder: Decoder[_Form], body: bytes) -> list[_Form]:
    """Return all items; each must be valid."""
    return [_decode(decoder, item) for item in _decode(METRICS_LIST, body).items]


def _each(decoder: Decoder[_Form], body: bytes) -> list[_Form]:
    """Return the valid items. If there are any, an invalid item counts as a pod without metrics."""
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


class MetricsClient:
    """Sends queries and returns the raw responses."""

    def __init__(self, client: Client) -> None:
        self._apis = {group: _Api(client, group, versions) for group, versions in _VERSIONS.items()}

    async def ask(self, query: MetricsQuery) -> bytes:
        """Return the response to a query. Raises CannotCompute if it fails."""
        return await self._apis[query.group].ask(query)


class _Api:
    """One metrics API, with its version once discovered."""

    def __init__(self, client: Client, group: str, versions: tuple[str, ...]) -> None:
        self._client = client
        self._group = group
        self._versions = versions
        self._version = versions[0] if len(versions) == 1 else ""
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(self, query: MetricsQuery) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turns.acquire()
        except TimeoutError:
            raise CannotCompute(f"{self._group} is too busy, or hangs") from None
        try:
            async with asyncio.timeout(DEADLINE):
                return await self._ask(query)
        except TimeoutError:
            raise CannotCompute(f"{self._group} did not answer within {DEADLINE:g} s") from None
        except (ApiError, OSError) as error:
            raise CannotCompute(f"metrics can't be fetched from {self._group}: {str(error)[:_MOST_WORDS]}") from None
        finally:
            self._turns.release()

    async def _ask(self, query: MetricsQuery) -> bytes:
        version = self._version or await self._preferred()
        try:
            body = await self._get(version, query)
        except NotFound as missing:
            return await self._ask_others(version, query, missing)
        if len(self._versions) > 1:
            self._version = version
        return body

    async def _ask_others(self, version: str, query: MetricsQuery, missing: NotFound) -> bytes:
        """Return the response of another version, since the version may be missing and not the metric."""
        for other in self._versions:
            if other != version:
                try:
                    body = await self._get(other, query)
                except NotFound:
                    continue
                self._version = other
                return body
        raise missing

    async def _preferred(self) -> str:
        """Return the preferred version served; without a response, our preferred version."""
        try:
            group = API_GROUP.decode(await self._client.raw(Call("GET", f"/apis/{self._group}")))
        except (ApiError, msgspec.DecodeError, RecursionError):
            return self._versions[0]
        served = {each.version for each in group.versions}
        return next((version for version in self._versions if version in served), self._versions[0])

    async def _get(self, version: str, query: MetricsQuery) -> bytes:
        return await self._client.raw(Call("GET", f"/apis/{self._group}/{version}/{query.path}", query.selectors))
