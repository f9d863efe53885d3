"""Computes the proposals of an autoscaler's metrics: pods from the cache, metrics from the APIs."""

from collections.abc import Iterable, Iterator, Sequence

from controller_manager.common.api.autoscaling import HorizontalPodAutoscaler, MetricSpec, Scale
from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.errors import ApiError, BadRequest, InvalidName
from controller_manager.common.api.resource import Key, key_of
from controller_manager.common.api.selectors import LabelSelector
from controller_manager.common.base import clock
from controller_manager.common.base.fair_loop import give_way
from controller_manager.common.base.tasks import all_of
from controller_manager.framework import Context, Informer

from ..shared.pods import pods_with_label
from ..shared.scales import NoSuchKind, RESTMapper
from .decision import ScalingDefaults, tolerance_of
from .metrics_client import MetricsClient, MetricsQuery, query_of
from .monitor import Monitor, action_of
from .proposals import Failure, Proposal, TargetState, failure, propose
from .replicas import CannotCompute, Startup

_Place = tuple[str, str, str]
_ASKED_AT_ONCE = 20  # metrics of one autoscaler


class ReplicaCalculator:
    """Computes proposals, and knows the selectors of all targets, so that two autoscalers never count the same pods."""

    def __init__(
        self, context: Context, mapper: RESTMapper, rules: ScalingDefaults, startup: Startup, monitor: Monitor
    ) -> None:
        self._pods = context.informers.get(PODS)
        self._metrics_client = MetricsClient(context.client)
        self._mapper = mapper
        self._defaults = rules
        self._startup = startup
        self._monitor = monitor
        self._selector_index = SelectorIndex()

    def forget(self, key: Key) -> None:
        """Drop an autoscaler that was deleted."""
        self._selector_index.drop(key)

    async def proposals(self, autoscaler: HorizontalPodAutoscaler, scale: Scale) -> list[Proposal | Failure] | Failure:
        """Return the proposal of each metric, or a single failure if none can be requested."""
        key, text = key_of(autoscaler), scale.status.selector
        if not text:
            return Failure("InvalidSelector", "the scale of the target has no selector", event="SelectorRequired")
        try:
            selector = LabelSelector.parse(text)
        except BadRequest as error:
            return Failure("InvalidSelector", str(error))
        pods = selected(self._pods, key.namespace, selector)
        self._selector_index.put(key, selector)
        claimants = self._selector_index.of(pods)
        if len(claimants) > 1:
            names = ", ".join(map(str, claimants))
            return Failure("AmbiguousSelector", f"pods of {text} are those of several autoscalers: {names}")
        view = TargetState(
            pods,
            scale.spec.replicas,
            scale.status.replicas,
            tolerance_of(autoscaler.spec, self._defaults),
            self._startup,
            clock.wall_seconds(),
        )
        return await self._measure(autoscaler.spec.metrics, key.namespace, text, view)

    async def _measure(
        self, metrics: Sequence[MetricSpec], namespace: str, selector: str, view: TargetState
    ) -> list[Proposal | Failure]:
        began = clock.monotonic()
        queries = []
        for spec in metrics:
            queries.append(await self._query(spec, namespace, selector))
            await give_way()
        answers = await self._answers(dict.fromkeys(query for query in queries if isinstance(query, MetricsQuery)))
        found = []
        for spec, query in zip(metrics, queries, strict=True):
            answer = answers[query] if isinstance(query, MetricsQuery) else query
            found.append(propose(spec, answer, view) if isinstance(answer, bytes) else failure(spec, answer))
            self._count(spec, found[-1], view, clock.monotonic() - began)
            await give_way()
        return found

    async def _answers(self, queries: Iterable[MetricsQuery]) -> dict[MetricsQuery, bytes | str]:
        """Request metrics with limited concurrency, since an autoscaler may have thousands."""
        answers: dict[MetricsQuery, bytes | str] = {}
        left = iter(queries)

        async def work() -> None:
            for query in left:
                answers[query] = await self._ask(query)
                await give_way()

        await all_of(*(work() for _ in range(_ASKED_AT_ONCE)))
        return answers

    async def _query(self, spec: MetricSpec, namespace: str, selector: str) -> MetricsQuery | str | bytes:
        """Return the query for a metric, an immediate response, or why it cannot be requested."""
        described = ""
        if spec.object is not None:
            try:
                described = (await self._mapper.of(spec.object.described_object))[0].resource.name
            except (NoSuchKind, ApiError, OSError) as error:
                return str(error)
        try:
            return query_of(spec, namespace, selector, described) or b""
        except InvalidName as error:
            return str(error)

    async def _ask(self, query: MetricsQuery) -> bytes | str:
        """Return the response, or the error text."""
        try:
            return await self._metrics_client.ask(query)
        except CannotCompute as error:
            return str(error)

    def _count(self, spec: MetricSpec, found: Proposal | Failure, view: TargetState, seconds: float) -> None:
        if isinstance(found, Proposal):
            self._monitor.computed(spec.type, action_of(view.wanted, found.replicas), "none", seconds)
        else:
            self._monitor.computed(spec.type, "none", "spec" if found.of_spec else "internal", seconds)


def selected(pods: Informer[Pod], namespace: str, selector: LabelSelector) -> list[Pod]:
    """Return the pods that a selector matches, using the label index for one of its labels."""
    exact = [each for each in selector.requirements if each.operator == "in"]
    few = min(
        ([pod for value in each.values for pod in pods_with_label(pods, namespace, each.key, value)] for each in exact),
        key=len,
        default=None,
    )
    found = pods.list(namespace) if few is None else few
    return [pod for pod in found if selector.matches(pod.metadata.labels)]


class SelectorIndex:
    """The selectors of all autoscalers, indexed by a label that all their pods must have, else by namespace."""

    def __init__(self) -> None:
        self._selectors: dict[Key, LabelSelector] = {}
        self._places: dict[_Place, set[Key]] = {}

    def put(self, key: Key, selector: LabelSelector) -> None:
        """Set the pod selector of the target of autoscaler `key`."""
        if self._selectors.get(key) == selector:
            return
        self.drop(key)
        self._selectors[key] = selector
        for place in _places(key.namespace, selector):
            self._places.setdefault(place, set()).add(key)

    def drop(self, key: Key) -> None:
        """Drop an autoscaler that was deleted."""
        selector = self._selectors.pop(key, None)
        for place in _places(key.namespace, selector) if selector is not None else ():
            there = self._places[place]
            there.discard(key)
            if not there:
                del self._places[place]

    def of(self, pods: Iterable[Pod]) -> list[Key]:
        """Return the autoscalers whose targets have any of these pods, sorted."""
        return sorted({key for pod in pods for key in self._claimants(pod)})

    def _claimants(self, pod: Pod) -> Iterator[Key]:
        space, labels = pod.metadata.namespace, pod.metadata.labels or {}
        for place in ((space, "", ""), *((space, name, value) for name, value in labels.items())):
            yield from (key for key in self._places.get(place, ()) if self._selectors[key].matches(labels))


def _places(namespace: str, selector: LabelSelector) -> list[_Place]:
    exact = [each for each in selector.requirements if each.operator == "in"]
    if not exact:
        return [(namespace, "", "")]
    longest = max(exact, key=lambda each: (-len(each.values), len(each.values[0])))
    return [(namespace, longest.key, value) for value in longest.values]
