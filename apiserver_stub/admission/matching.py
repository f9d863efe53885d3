"""Matching: whether a request matches a webhook or policy, and the resource version in which the object is passed to
it.

Criteria are rules (operations, groups, versions, resources and subresources, scope, resource names), exclude rules, and
selectors of namespaces and objects (API reference, `MatchResources` and `RuleWithOperations`). The results of rules are
cached for similar requests; only names and labels are evaluated per request.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

import msgspec

from apiserver_stub.admission.chain import Attributes, Operation
from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import not_found
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.selectors import LabelSelector, LabelSelectorSpec
from controller_manager.common.api.tree import FrozenTree

T = TypeVar("T")

_GROUP = f"admissionregistration.{GROUP_DOMAIN}"
_EXEMPT = frozenset({
    "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
})  # fmt: skip
_NAMESPACES = "namespaces"
_MOST_REMEMBERED = 1024  # sorts of requests
_NOTHING: Mapping[str, str] = {}


class GroupVersionKind(NamedTuple):
    """The type of the objects that are seen."""

    group: str
    version: str
    kind: str


_Key = tuple[int, str, str, bool]


class MatchRule(NamedTuple):
    """A rule: `*` matches everything; a resource is `plural`, `plural/subresource`, or has `*` for either part. Without
    `names`, objects of any name match.
    """

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str = "*"
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tree: FrozenTree) -> Self:
        """Return the rule in an object of the API."""
        return cls(
            frozenset(tree.get("operations") or ()),
            frozenset(tree.get("apiGroups") or ()),
            frozenset(tree.get("apiVersions") or ()),
            tuple(_parts(each) for each in tree.get("resources") or ()),
            tree.get("scope") or "*",
            frozenset(tree.get("resourceNames") or ()),
        )

    def covers(self, info: ResourceInfo, subresource: str, operation: Operation, *, namespaced: bool) -> bool:
        """Return whether the rule matches such requests, for any object name."""
        return (
            _has(self.operations, operation.upper())
            and _has(self.groups, info.group)
            and _has(self.versions, info.version)
            and any(one in ("*", info.plural) and part in ("*", subresource) for one, part in self.resources)
            and self._is_in_scope(info, namespaced=namespaced)
        )

    def _is_in_scope(self, info: ResourceInfo, *, namespaced: bool) -> bool:
        within = namespaced and not is_namespace(info)
        return self.scope == "*" or self.scope == ("Namespaced" if within else "Cluster")


class MatchCriteria(NamedTuple):
    """The match criteria of a webhook or policy. `rules` None matches all requests; a selector None selects everything.
    With `equivalent`, a request also matches rules for other versions of the resource.
    """

    rules: tuple[MatchRule, ...] | None
    excluded: tuple[MatchRule, ...] = ()
    namespaces: LabelSelector | None = None
    objects: LabelSelector | None = None
    equivalent: bool = True

    @classmethod
    def of_webhook(cls, webhook: FrozenTree) -> Self:
        """Return the criteria of a webhook. Without rules it matches nothing."""
        rules = tuple(MatchRule.of(rule) for rule in webhook.get("rules") or ())
        return cls(rules, (), *_selectors(webhook), equivalent=webhook.get("matchPolicy") == "Equivalent")

    @classmethod
    def of_resources(cls, resources: FrozenTree) -> Self:
        """Return the criteria of `MatchResources` (of a policy or a binding). Without rules they match all requests."""
        rules = tuple(MatchRule.of(rule) for rule in resources.get("resourceRules") or ())
        excluded = tuple(MatchRule.of(rule) for rule in resources.get("excludeResourceRules") or ())
        equivalent = resources.get("matchPolicy") == "Equivalent"
        return cls(rules or None, excluded, *_selectors(resources), equivalent=equivalent)


class _Sort(NamedTuple):
    """Requests that rules distinguish only by object name: of a resource and its equivalent resources."""

    infos: tuple[ResourceInfo, ...]  # the requested resource first
    subresource: str
    operation: Operation
    namespaced: bool

    def found(self, criteria: MatchCriteria, name: str | None) -> ResourceInfo | None:
        """Return the resource under which the rules match an object name; None stands for any name."""
        infos = self.infos if criteria.equivalent else self.infos[:1]
        excluded = criteria.excluded if name is not None else [rule for rule in criteria.excluded if not rule.names]
        if self._first(excluded, infos, name):
            return None
        return self.infos[0] if criteria.rules is None else self._first(criteria.rules, infos, name)

    def _first(
        self, rules: Sequence[MatchRule], infos: Sequence[ResourceInfo], name: str | None
    ) -> ResourceInfo | None:
        """Return the resource of the first rule that matches; a match in the requested version takes precedence."""
        for rule in rules:
            if self._covered(rule, infos[0], name):
                return infos[0]
        return next((info for rule in rules for info in infos[1:] if self._covered(rule, info, name)), None)

    def _covered(self, rule: MatchRule, info: ResourceInfo, name: str | None) -> bool:
        named = not rule.names or name is None or name in rule.names
        return named and rule.covers(info, self.subresource, self.operation, namespaced=self.namespaced)


class Matcher:
    """Matches requests; `store` has the labels of namespaces, `kinds` the versions of resources."""

    def __init__(self, store: WatchCache, kinds: ResourceRegistry) -> None:
        self._store = store
        self._kinds = kinds
        self._sorts: dict[_Key, _Sort] = {}
        self._generation = kinds.generation

    def match(self, criteria: MatchCriteria, attributes: Attributes) -> ResourceInfo | None:
        """Return the resource, in the version of the rule, if the criteria match. Raises `NotFound` if they depend on a
        namespace that does not exist.
        """
        info = self.sort(attributes).found(criteria, attributes.name)
        return info if info is not None and self.selects(criteria, attributes) else None

    def selects(self, criteria: MatchCriteria, attributes: Attributes) -> bool:
        """Return whether the selectors match. Raises `NotFound` if they depend on a namespace that does not exist."""
        if criteria.objects is not None and not _selected(criteria.objects, attributes):
            return False
        return criteria.namespaces is None or self._in_namespaces(criteria.namespaces, attributes)

    def sort(self, attributes: Attributes) -> _Sort:
        """Return the request as rules see it."""
        if self.generation != self._generation or len(self._sorts) > _MOST_REMEMBERED:
            self._sorts.clear()
            self._generation = self.generation
        key = _key(attributes)
        found = self._sorts.get(key)
        if found is None:
            found = self._sorts[key] = self._sort(attributes)
        return found

    @property
    def generation(self) -> int:
        """A number that changes when other resources are served."""
        return self._kinds.generation

    def _sort(self, attributes: Attributes) -> _Sort:
        info, subresource = attributes.kind, attributes.subresource
        others = (
            each
            for each in self._kinds.equivalent_to(info)
            if (each.group, each.version) != (info.group, info.version)
            and (not subresource or subresource in each.subresources)
        )
        return _Sort((info, *others), subresource, attributes.operation, bool(attributes.namespace))

    def _in_namespaces(self, selector: LabelSelector, attributes: Attributes) -> bool:
        is_itself = is_namespace(attributes.kind)
        if is_itself and not attributes.subresource and attributes.operation in ("create", "update"):
            return selector.matches(_labels(attributes.object))
        name = namespace_of(attributes)
        if not name and not is_itself:
            return True
        row = self._store.get(_NAMESPACES, name)
        if row is None:
            raise not_found("", _NAMESPACES, name)
        return selector.matches(row.labels)


class MatchIndex(Generic[T]):
    """Items with match criteria, in order. Rule results are cached for similar requests."""

    def __init__(self, matcher: Matcher, entries: Sequence[tuple[MatchCriteria, T]] = ()) -> None:
        self._matcher = matcher
        self._entries = entries
        self._covered: dict[_Key, Sequence[Candidate[T]]] = {}
        self._generation = matcher.generation

    def __bool__(self) -> bool:
        return bool(self._entries)

    def matching(self, attributes: Attributes) -> Iterator[tuple[T, ResourceInfo]]:
        """Yield the items that match, with the resource in the version of the rule. Labels are evaluated lazily,
        because earlier items may change them. Raises `NotFound` if the namespace does not exist.
        """
        for candidate in self.candidates(attributes):
            info = self.match(candidate, attributes)
            if info is not None:
                yield candidate.thing, info

    def match(self, candidate: "Candidate[T]", attributes: Attributes) -> ResourceInfo | None:
        """Return the resource, in the version that a rule names, if a candidate concerns the request. Raises the
        same.
        """
        _, criteria, info, sort = candidate
        found = info if sort is None else sort.found(criteria, attributes.name)
        return found if found is not None and self._matcher.selects(criteria, attributes) else None

    def candidates(self, attributes: Attributes) -> "Sequence[Candidate[T]]":
        """Return the items that may match, based on rules only."""
        key = _key(attributes)
        if self._generation != self._matcher.generation or len(self._covered) > _MOST_REMEMBERED:
            self._covered.clear()
            self._generation = self._matcher.generation
        found = self._covered.get(key)
        if found is None:
            found = self._covered[key] = list(self._choose(self._matcher.sort(attributes)))
        return found

    def _choose(self, sort: _Sort) -> "Iterator[Candidate[T]]":
        for criteria, thing in self._entries:
            info = sort.found(criteria, None)
            if info is not None:
                yield Candidate(thing, criteria, info, sort if _depends_on_names(criteria) else None)


class Candidate(NamedTuple, Generic[T]):
    """An item that may match similar requests, and the matched resource. `sort` is set if the match depends on the
    object name and must be evaluated per request.
    """

    thing: T
    criteria: MatchCriteria
    info: ResourceInfo
    sort: _Sort | None


def is_exempt(info: ResourceInfo) -> bool:
    """Return whether webhooks and policies skip a kind, so that none can block its own removal."""
    return info.group == _GROUP and info.kind in _EXEMPT


def is_namespace(info: ResourceInfo) -> bool:
    """Return whether the resource is `namespaces`. A namespace counts as being in itself."""
    return info.plural == _NAMESPACES and not info.group


def namespace_of(attributes: Attributes) -> str:
    """Return the namespace of a request; for a namespace object, the namespace itself."""
    return attributes.name if is_namespace(attributes.kind) else attributes.namespace


def kind_of(info: ResourceInfo, subresource: str) -> GroupVersionKind:
    """Return the type of the objects that a resource or its subresource takes."""
    part = info.subresources.get(subresource) if subresource else None
    if part is None:
        return GroupVersionKind(info.group, info.version, info.kind)
    return GroupVersionKind(part.group, part.version, part.kind)


def _parts(resource: str) -> tuple[str, str]:
    plural, _, subresource = resource.partition("/")
    return plural, subresource


def _has(values: frozenset[str], value: str) -> bool:
    return value in values or "*" in values


def _selectors(tree: FrozenTree) -> tuple[LabelSelector | None, LabelSelector | None]:
    return _selector(tree.get("namespaceSelector")), _selector(tree.get("objectSelector"))


def _selector(tree: FrozenTree | None) -> LabelSelector | None:
    selector = msgspec.convert(tree or {}, LabelSelectorSpec).selector()
    return None if selector.empty else selector


def _key(attributes: Attributes) -> _Key:
    return attributes.kind.serial, attributes.subresource, attributes.operation, bool(attributes.namespace)


def _depends_on_names(criteria: MatchCriteria) -> bool:
    return any(rule.names for rule in (*criteria.excluded, *(criteria.rules or ())))


def _selected(selector: LabelSelector, attributes: Attributes) -> bool:
    """Return whether the new or the old object is selected. Connection options have no labels."""
    if attributes.operation == "connect":
        return False
    trees = (attributes.object, attributes.old_object)
    return any(tree is not None and selector.matches(_labels(tree)) for tree in trees)


def _labels(tree: Mapping[str, Any] | None) -> Mapping[str, str]:
    return ((tree or {}).get("metadata") or {}).get("labels") or _NOTHING
