"""Current policies and bindings, read from the watch cache. Programs are cached until a policy changes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.matching import MatchCriteria, Matcher, MatchIndex
from apiserver_stub.admission.policies.inputs import RequestInputs
from apiserver_stub.common.offload import StepRunner
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.row import Change, CorruptRow, Row
from controller_manager.common.api.tree import Tree

P = TypeVar("P")


class ParamKind(NamedTuple):
    """The parameter kind of a policy."""

    api_version: str
    kind: str


class Exclusion(NamedTuple):
    """The match conditions of a policy that take no parameters and are cheap: `excludes` returns whether one is false
    for the result of `frame`, which is the same for all policies of a request in its own version.
    """

    frame: Callable[[RequestInputs], list[Any]]
    excludes: Callable[[list[Any]], bool]


class Binding(NamedTuple):
    """A binding of a policy: it applies to requests of `criteria` (None: all of the policy), with the parameters of
    `parameters` (`spec.paramRef`) and the actions of `spec.validationActions`.
    """

    name: str
    criteria: MatchCriteria | None
    parameters: Tree | None
    actions: tuple[str, ...]


@dataclass(slots=True, eq=False)
class IndexedPolicy(Generic[P]):
    """A policy at one revision with its bindings, sorted by name. `fails` means that evaluation errors reject the
    request. `program` holds the compiled expressions, None before the first use; `exclusion` is the cheap part of its
    match conditions.
    """

    name: str
    revision: int
    spec: Tree
    criteria: MatchCriteria
    param_kind: ParamKind | None
    fails: bool
    bindings: Sequence[Binding] = ()
    program: P | None = None
    exclusion: Exclusion | None = None


class PolicyIndex(Generic[P]):
    """The bound policies of one kind, sorted by name. `compile` creates the program of a `spec` on first use, by `run`.
    Nothing is read before the first request.
    """

    def __init__(
        self,
        store: WatchCache,
        matcher: Matcher,
        resources: tuple[str, str],
        compile: Callable[[Tree], P],  # noqa: A002 - compiles a policy
        run: StepRunner,
    ) -> None:
        self._store = store
        self._matcher = matcher
        self._policies, self._bindings = resources
        self._compile = compile
        self._run = run
        self._known: dict[str, IndexedPolicy[P]] = {}
        self._index: MatchIndex[IndexedPolicy[P]] = MatchIndex(matcher)
        self._changed = False

    def read(self) -> None:
        """Read the existing bindings and subscribe to changes."""
        self._changed = bool(self._store.count(self._bindings))
        self._store.subscribe(self._on_changes)

    def __bool__(self) -> bool:
        if self._changed:
            self._changed = False
            self._renew()
        return bool(self._known)

    def matching(
        self, attributes: Attributes, inputs: RequestInputs | None = None
    ) -> Iterator[tuple[IndexedPolicy[P], ResourceInfo]]:
        """Yield the policies that match a request, with the resource in the version of the rule. With `inputs`,
        policies are skipped if cheap match conditions exclude the request. Raises `NotFound` if the namespace does not
        exist.
        """
        if not self:
            return
        index, kind, frame = self._index, attributes.kind, None
        for candidate in index.candidates(attributes):
            policy, _, info, _ = candidate
            exclusion = policy.exclusion
            if exclusion is not None and info is kind and inputs is not None:
                make, excludes = exclusion
                if frame is None:
                    frame = make(inputs)
                if excludes(frame):
                    continue
            found = index.match(candidate, attributes)
            if found is not None:
                yield policy, found

    async def program(self, policy: IndexedPolicy[P]) -> P:
        """Return the program of a policy."""
        found = policy.program
        if found is None:
            found = policy.program = await self._run(lambda: self._compile(policy.spec))
        return found

    def _on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.row.resource == self._policies or change.row.resource == self._bindings:
                self._changed = True

    def _renew(self) -> None:
        bindings: dict[str, list[Binding]] = {}
        for tree in self._trees(self._bindings):
            bindings.setdefault(tree["spec"]["policyName"], []).append(_binding(tree))
        known, self._known = self._known, {}
        for name in sorted(bindings):
            row = self._store.get(self._policies, name)
            if row is None or isinstance(row, CorruptRow):
                continue
            policy = known.get(name)
            if policy is None or policy.revision != row.revision:
                policy = _policy(row)
            policy.bindings = bindings[name]
            self._known[name] = policy
        entries = [(policy.criteria, policy) for policy in self._known.values()]
        self._index = MatchIndex(self._matcher, entries)

    def _trees(self, resource: str) -> Iterator[Tree]:
        for row in self._store.snapshot(resource).items():
            if not isinstance(row, CorruptRow):
                yield orjson.loads(row.data)


def _policy(row: Row) -> IndexedPolicy[Any]:
    spec: Tree = orjson.loads(row.data)["spec"]
    kind = spec.get("paramKind")
    return IndexedPolicy(
        row.name,
        row.revision,
        spec,
        MatchCriteria.of_resources(spec.get("matchConstraints") or {}),
        None if kind is None else ParamKind(kind["apiVersion"], kind["kind"]),
        spec.get("failurePolicy") != "Ignore",
    )


def _binding(tree: Tree) -> Binding:
    spec = tree["spec"]
    resources = spec.get("matchResources")
    criteria = None if resources is None else MatchCriteria.of_resources(resources)
    return Binding(tree["metadata"]["name"], criteria, spec.get("paramRef"), tuple(spec.get("validationActions") or ()))
