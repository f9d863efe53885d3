"""Admission: requests as it sees them (`Attributes`), and the plugins that are asked, in three phases.

| phase      | when                                        | what its plugins do                                     |
|------------|---------------------------------------------|---------------------------------------------------------|
| mutating   | once defaults are filled in                 | change the object, or refuse it                         |
| validating | once the object keeps the rules of its kind | refuse it, as it will be written                        |
| allocation | last, directly before the commit            | give the object what there is one of: addresses, ports  |
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
    """What plugins want to be told besides their verdict: warnings to the caller, each once, and annotations of the
    event of the audit; those `of_objects` are for events that tell of objects, too.
    """

    __slots__ = ("annotations", "of_objects", "warnings")

    def __init__(self) -> None:
        self.warnings: dict[str, None] = {}
        self.annotations: dict[str, str] = {}
        self.of_objects: dict[str, str] = {}

    def warn(self, text: str) -> None:
        """Have the caller warned, whatever becomes of the request."""
        self.warnings[text] = None

    def annotate(self, key: str, value: str) -> None:
        """Have the audit told; what was told of the key first stays."""
        self.annotations.setdefault(key, value)


class Reinvocation:
    """The second time that mutating plugins are asked about a request, once, if one of them asks for it: plugins that
    came earlier see then what later ones made of the object. `kept` is for what plugins want to know then, by keys of
    their own. `sent` is an object of an update as it was before others than this server changed it: of what they make
    of it, its caller owns nothing.
    """

    __slots__ = ("again", "asked", "kept", "sent")

    def __init__(self) -> None:
        self.again = False
        self.asked = False
        self.kept: dict[str, Any] = {}
        self.sent: dict[str, Any] | None = None

    def ask(self) -> None:
        """Have all plugins asked again."""
        self.asked = True


class Attributes(Struct, frozen=True):
    """A request about to be carried out, as admission sees it.

    `object` is what is to be: the object itself, which mutating plugins change in place; for a subresource that takes
    another kind that one (`Scale`, `Binding`, `Eviction`, `TokenRequest`); for `connect` the options of the connection,
    if any; None for a delete. `old_object` is what an update replaces or a delete removes. `name` is empty while a name
    has yet to be generated, and the `options` are those of the caller (query parameters or `DeleteOptions`). The
    `notes` are those of the request, in all phases, and the `verb` is the one that authorizers are asked for.
    Plugins work on all of an object by `run`, which takes that off the loop if the object is large; it reads no store.
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
        """The name that refusals tell: of a new object that it brings, or what its name is to begin with."""
        metadata = (self.object or {}).get("metadata") or {}
        return self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"

    def refused(self, why: str, *causes: Cause) -> Forbidden:
        """Return the refusal of the request, for a plugin to raise."""
        return forbidden(self.kind.group, self.kind.plural, self.known_name, why, *causes)


Admit = Callable[[Attributes], Awaitable[Sequence[Also] | None] | None]
"""Looks at a request, and raises the refusal of one that it does not admit; returns what is to be awaited, if anything
is. In the allocation phase that may return writes of other rows, which are committed with that of the object or not at
all, and what must hold of others then.
"""


class Rule(NamedTuple):
    """A function of a plugin and what it is asked about: operations, resources named as in the store
    (`ResourceInfo.storage`), and subresources, of which the empty name is the object itself.
    """

    admit: Admit
    operations: tuple[Operation, ...]
    resources: tuple[str, ...] = (ALL,)
    subresources: tuple[str, ...] = ("",)

    def covers(self, resource: str, subresource: str, operation: Operation) -> bool:
        """Return whether the plugin is asked about this."""
        return (
            operation in self.operations
            and (self.resources == (ALL,) or resource in self.resources)
            and (self.subresources == (ALL,) or subresource in self.subresources)
        )


Rules = Sequence[Rule]


def _nothing() -> None:
    """Do nothing (default of `read`)."""


async def _wait_for_nothing() -> None:
    """Nothing is to be done."""


class AdmissionPlugin(NamedTuple):
    """A plugin by the name that flags and metrics know (`LimitRanger`), with its rules in each phase.

    Without a name it belongs to the kinds it is about, and is always on. `read` is called once the store is open, `run`
    works in the background until it is cancelled, `close` releases what the plugin holds.
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
    "How long admission plugins took, by whether they refused.",
    "histogram",
    ("name", "operation", "rejected", "type"),
    _BUCKETS,
    stability="STABLE",
)
_STEP = Family(
    "apiserver_admission_step_admission_duration_seconds",
    "How long all plugins of a phase took together, by whether one refused.",
    "histogram",
    ("operation", "rejected", "type"),
    _BUCKETS,
    stability="STABLE",
)


class AdmissionMetrics:
    """What is counted of plugins that have a name, of the phases they are asked in, of webhooks, and of the match
    conditions of webhooks and policies.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.plugins = Histograms(_PLUGIN, registry)
        self.steps = Histograms(_STEP, registry)
        self.webhooks = WebhookMetrics(registry)
        self.conditions = ConditionMetrics(registry)


class Admission:
    """The plugins in their order, asked in each phase about what concerns them; each raises the refusal of what it does
    not admit.
    """

    def __init__(self, plugins: Sequence[AdmissionPlugin] = (), metrics: AdmissionMetrics | None = None) -> None:
        metrics = metrics or AdmissionMetrics()
        self._mutating = _Phase("admit", [(one.name, rule) for one in plugins for rule in one.mutating], metrics)
        self._validating = _Phase("validate", [(one.name, rule) for one in plugins for rule in one.validating], metrics)
        self._allocation = _Phase("", [(one.name, rule) for one in plugins for rule in one.allocation], metrics)

    @classmethod
    def of(cls, mutating: Rules = (), validating: Rules = (), allocation: Rules = ()) -> Self:
        """Return the rules of one plugin that has no name."""
        return cls([AdmissionPlugin("", mutating, validating, allocation)])

    async def mutate(self, attributes: Attributes) -> None:
        """Have the object changed; it may not keep the rules of its kind yet."""
        await self._mutating.ask(attributes)
        reinvocation = attributes.reinvocation
        if reinvocation.asked:
            reinvocation.again = True
            await self._mutating.ask(attributes)

    def validate(self, attributes: Attributes) -> Awaitable[None]:
        """Have the object judged as it is to be."""
        return self._validating.ask(attributes)

    async def allocate(self, attributes: Attributes) -> Sequence[Also]:
        """Have the object given what only one may have; it holds for a commit that follows at once, with the writes
        and comparisons that are returned.
        """
        also: list[Also] = []
        chosen = self._allocation.chosen(attributes.kind.storage, attributes.subresource, attributes.operation)
        for _, admit, _ in chosen:
            if (waiting := admit(attributes)) is not None:
                also += await waiting or ()
        return also


_Chosen = tuple[str, Admit, Distribution]  # a plugin, its function, and how long that took when it let requests pass


class _Phase:
    """The rules of a phase; which of them concern a request is found out once for all requests like it."""

    def __init__(self, kind: str, rules: Sequence[tuple[str, Rule]], metrics: AdmissionMetrics) -> None:
        self._kind = kind
        self._rules = tuple(rules)
        self._metrics = metrics
        self._now = precise_clock()
        self.chosen = lru_cache(_MOST_REMEMBERED)(self._choose)
        self._passed = lru_cache(_MOST_REMEMBERED)(self._steps_passed)

    async def ask(self, attributes: Attributes) -> None:
        """Ask each plugin in turn, up to one that refuses."""
        operation, clock = attributes.operation, self._now
        chosen = self.chosen(attributes.kind.storage, attributes.subresource, operation)
        if not chosen:
            return
        began = at = clock()
        name, shortest = "", chosen[0][2].bounds[0]
        try:
            for name, admit, took in chosen:  # noqa: B007 - the last one that was asked is told of
                if (waiting := admit(attributes)) is not None:
                    await waiting
                if attributes.run is not at_once:
                    await asyncio.sleep(0)  # others may run between two plugins that work on a large object
                now = clock()
                seconds = now - at
                if seconds <= shortest:  # as nearly always
                    took.counts[0] += 1
                    took.sum += seconds
                else:
                    took.observe(seconds)
                at = now
        except BaseException:
            now, told = clock(), operation.upper()
            if name:
                self._metrics.plugins.observe(now - at, name, told, "true", self._kind)
            self._metrics.steps.observe(now - began, told, "true", self._kind)
            raise
        self._passed(operation).observe(at - began)

    def _choose(self, resource: str, subresource: str, operation: Operation) -> tuple[_Chosen, ...]:
        told, plugins = operation.upper(), self._metrics.plugins
        uncounted = Distribution(plugins.family.buckets)
        return tuple(
            (name, rule.admit, plugins.of(name, told, "false", self._kind) if name else uncounted)
            for name, rule in self._rules
            if rule.covers(resource, subresource, operation)
        )

    def _steps_passed(self, operation: Operation) -> Distribution:
        return self._metrics.steps.of(operation.upper(), "false", self._kind)
