"""Admission: the request attributes that plugins see (`Attributes`), and the plugins, which run in three phases.

| phase      | when                                        | what its plugins do                                     |
|------------|---------------------------------------------|---------------------------------------------------------|
| mutating   | after defaulting                            | change the object, or reject the request                |
| validating | after validation of the object              | reject the request                                      |
| allocation | last, directly before the commit            | assign unique values to the object: addresses, ports    |
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

from msgspec import Struct, field
from prometheus_client import CollectorRegistry

from apiserver_stub.admission.metrics import ConditionMetrics, WebhookMetrics
from apiserver_stub.common.offload import StepRunner, at_once
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.joint_commits import Also
from controller_manager.common.api.errors import Cause, Forbidden, forbidden
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import precise_clock
from controller_manager.common.base.metrics import Distribution, Family, Histograms
from controller_manager.common.serving.authentication import User

Operation = Literal["create", "update", "delete", "connect"]

ALL = "*"
"""Stands for all resources, or for all subresources and the object itself."""
_MOST_REMEMBERED = 4096  # choices of plugins
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Notes:
    """Results of plugins other than the decision: warnings for the caller, without duplicates, and audit annotations.
    Annotations `of_objects` are for audit levels that include objects.
    """

    __slots__ = ("annotations", "of_objects", "warnings")

    def __init__(self) -> None:
        self.warnings: dict[str, None] = {}
        self.annotations: dict[str, str] = {}
        self.of_objects: dict[str, str] = {}

    def warn(self, text: str) -> None:
        """Add a warning to the response, whether or not the request succeeds."""
        self.warnings[text] = None

    def annotate(self, key: str, value: str) -> None:
        """Add an audit annotation. The first value of a key is kept."""
        self.annotations.setdefault(key, value)


class Reinvocation:
    """The state of reinvocation: mutating plugins run once more if one of them asks for it, so that earlier plugins see
    the changes of later ones. `kept` holds the state of plugins between both runs, by plugin-specific keys. `sent` is
    the object of an update before code outside this server changed it: the caller does not own the fields that were
    changed.
    """

    __slots__ = ("again", "asked", "kept", "sent")

    def __init__(self) -> None:
        self.again = False
        self.asked = False
        self.kept: dict[str, Any] = {}
        self.sent: dict[str, Any] | None = None

    def ask(self) -> None:
        """Request a second run of all mutating plugins."""
        self.asked = True


class Attributes(Struct, frozen=True):
    """A write request as seen by admission plugins.

    `object` is the new object, which mutating plugins change in place; for a subresource of another kind an object of
    that kind (`Scale`, `Binding`, `Eviction`, `TokenRequest`); for `connect` the connection options, if any; None for a
    delete. `old_object` is the object that an update replaces or a delete removes. `name` is empty until a name is
    generated; `options` are those of the caller (query parameters or `DeleteOptions`). `notes` are shared by all
    phases; `verb` is the verb used for authorization. Plugins use `run` for work on a whole object, which moves it off
    the event loop if the object is large; such work must not read the store.
    """

    operation: Operation
    kind: ResourceInfo
    namespace: str
    name: str
    subresource: str
    object: Tree | None
    old_object: Tree | None
    user: User
    dry_run: bool = False
    options: Mapping[str, Any] = _NO_OPTIONS
    requested_name: str = ""
    notes: Notes = field(default_factory=Notes)
    reinvocation: Reinvocation = field(default_factory=Reinvocation)
    verb: str = ""
    run: StepRunner = at_once

    @property
    def tree(self) -> Tree:
        """The object of an operation that has one."""
        assert self.object is not None
        return self.object

    @property
    def known_name(self) -> str:
        """The name shown in errors; for a new object its name or `generateName`."""
        metadata = (self.object or {}).get("metadata") or {}
        return self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"

    def refused(self, why: str, *causes: Cause) -> Forbidden:
        """Return the refusal of the request, for a plugin to raise."""
        return forbidden(self.kind.group, self.kind.plural, self.known_name, why, *causes)


Admit = Callable[[Attributes], Awaitable[Sequence[Also] | None] | None]
"""Checks a request and raises the error that rejects it; returns an awaitable or None. In the allocation phase the
result may contain writes of other rows, committed in the same transaction as the object, and conditions on other rows.
"""


class Rule(NamedTuple):
    """A function of a plugin and the requests it handles: operations, resources named as in the store
    (`ResourceInfo.storage`), and subresources, where the empty name is the object itself.
    """

    admit: Admit
    operations: tuple[Operation, ...]
    resources: tuple[str, ...] = (ALL,)
    subresources: tuple[str, ...] = ("",)

    def covers(self, resource: str, subresource: str, operation: Operation) -> bool:
        """Return whether the rule applies to a request."""
        return (
            operation in self.operations
            and (self.resources == (ALL,) or resource in self.resources)
            and (self.subresources == (ALL,) or subresource in self.subresources)
        )


Rules = Sequence[Rule]


def _nothing() -> None:
    """Do nothing (default of `read`)."""


async def _wait_for_nothing() -> None:
    """Do nothing (default of `close`)."""


class AdmissionPlugin(NamedTuple):
    """A plugin with its name in flags and metrics (`LimitRanger`) and its rules per phase.

    A plugin without a name is part of the kinds it handles and always enabled. `read` is called after the store is
    open, `run` works in the background until canceled, `close` releases the resources of the plugin.
    """

    name: str
    mutating: Rules = ()
    validating: Rules = ()
    allocation: Rules = ()
    read: Callable[[], None] = _nothing
    run: Callable[[], Coroutine[Any, Any, None]] | None = None
    close: Callable[[], Awaitable[None]] = _wait_for_nothing


_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
_PLUGIN = Family(
    "apiserver_admission_controller_admission_duration_seconds",
    "Seconds spent in admission plugins, by whether they rejected the request.",
    "histogram",
    ("name", "operation", "rejected", "type"),
    _BUCKETS,
    stability="STABLE",
)
_STEP = Family(
    "apiserver_admission_step_admission_duration_seconds",
    "Seconds spent in all plugins of a phase, by whether one rejected the request.",
    "histogram",
    ("operation", "rejected", "type"),
    _BUCKETS,
    stability="STABLE",
)


class AdmissionMetrics:
    """Metrics of named plugins, of phases, of webhooks, and of the match conditions of webhooks and policies."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.plugins = Histograms(_PLUGIN, registry)
        self.steps = Histograms(_STEP, registry)
        self.webhooks = WebhookMetrics(registry)
        self.conditions = ConditionMetrics(registry)


class Admission:
    """Runs the plugins of each phase in order. A plugin rejects a request by raising an `ApiError`."""

    def __init__(self, plugins: Sequence[AdmissionPlugin] = (), metrics: AdmissionMetrics | None = None) -> None:
        metrics = metrics or AdmissionMetrics()
        self._mutating = _Phase("admit", [(one.name, rule) for one in plugins for rule in one.mutating], metrics)
        self._validating = _Phase("validate", [(one.name, rule) for one in plugins for rule in one.validating], metrics)
        self._allocation = _Phase("", [(one.name, rule) for one in plugins for rule in one.allocation], metrics)

    @classmethod
    def of(cls, mutating: Rules = (), validating: Rules = (), allocation: Rules = ()) -> Self:
        """Return the admission with the rules of one unnamed plugin."""
        return cls([AdmissionPlugin("", mutating, validating, allocation)])

    async def mutate(self, attributes: Attributes) -> None:
        """Run the mutating plugins. The object may not be valid yet."""
        await self._mutating.ask(attributes)
        reinvocation = attributes.reinvocation
        if reinvocation.asked:
            reinvocation.again = True
            await self._mutating.ask(attributes)

    def validate(self, attributes: Attributes) -> Awaitable[None]:
        """Run the validating plugins on the final object."""
        return self._validating.ask(attributes)

    async def allocate(self, attributes: Attributes) -> Sequence[Also]:
        """Run the allocation plugins. The commit must follow at once, with the returned writes and comparisons."""
        also: list[Also] = []
        chosen = self._allocation.chosen(attributes.kind.storage, attributes.subresource, attributes.operation)
        for _, admit, _ in chosen:
            if (waiting := admit(attributes)) is not None:
                also += await waiting or ()
        return also


_Chosen = tuple[str, Admit, Distribution]  # plugin name, function, and histogram of the latency of admitted requests


class _Phase:
    """The rules of one phase. Which rules apply is cached by resource, subresource and operation."""

    def __init__(self, kind: str, rules: Sequence[tuple[str, Rule]], metrics: AdmissionMetrics) -> None:
        self._kind = kind
        self._rules = tuple(rules)
        self._metrics = metrics
        self._now = precise_clock()
        self.chosen = lru_cache(_MOST_REMEMBERED)(self._choose)
        self._passed = lru_cache(_MOST_REMEMBERED)(self._steps_passed)

    async def ask(self, attributes: Attributes) -> None:
        """Run each plugin in order, until one rejects the request."""
        operation, clock = attributes.operation, self._now
        chosen = self.chosen(attributes.kind.storage, attributes.subresource, operation)
        if not chosen:
            return
        began = at = clock()
        name, shortest = "", chosen[0][2].bounds[0]
        try:
            for name, admit, took in chosen:  # noqa: B007 - a failure is counted for the last one
                if (waiting := admit(attributes)) is not None:
                    await waiting
                if attributes.run is not at_once:
                    await asyncio.sleep(0)  # yield between two plugins that work on a large object
                now = clock()
                seconds = now - at
                if seconds <= shortest:  # as nearly always
                    took.counts[0] += 1
                    took.sum += seconds
                else:
                    took.observe(seconds)
                at = now
        except BaseException:
            now, label = clock(), operation.upper()
            if name:
                self._metrics.plugins.observe(now - at, name, label, "true", self._kind)
            self._metrics.steps.observe(now - began, label, "true", self._kind)
            raise
        self._passed(operation).observe(at - began)

    def _choose(self, resource: str, subresource: str, operation: Operation) -> tuple[_Chosen, ...]:
        label, plugins = operation.upper(), self._metrics.plugins
        uncounted = Distribution(plugins.family.buckets)
        return tuple(
            (name, rule.admit, plugins.of(name, label, "false", self._kind) if name else uncounted)
            for name, rule in self._rules
            if rule.covers(resource, subresource, operation)
        )

    def _steps_passed(self, operation: Operation) -> Distribution:
        return self._metrics.steps.of(operation.upper(), "false", self._kind)
