"""The plugin LimitRanger: defaults and limits from the LimitRanges of a namespace for its pods and claims.

`fill` and `exceeded` are pure.
"""

import operator
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_UP, Decimal
from functools import partial
from typing import Any

import orjson

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.kinds.defaults.pods import total
from apiserver_stub.kinds.values.trees import get_in, put_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.quantity import canonical, parse
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving.authorization import all_errors

_RANGES, _PODS = "limitranges", ("pods",)
_ANNOTATION = ("metadata", "annotations", f"{PLATFORM_DOMAIN}/limit-ranger")
_SORTS = (("containers", "container"), ("initContainers", "init container"))
_DEFAULTS = (("requests", "defaultRequest", "request"), ("limits", "default", "limit"))
_OF_PODS = ("cpu", "memory")  # resources that can be set at pod level
_MOST_IN_THOUSANDTHS = 2**63 // 1000

Amounts = Mapping[str, str]


class LimitRanges:
    """Plugin of new pods, of pods that are resized, and of claims; reads ranges from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store
        self._known: tuple[int, Mapping[str, Sequence[Sequence[Tree]]]] = (-1, {})

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        """Set missing requests and limits of the containers of a pod."""
        ranges = self._of(attributes)
        return attributes.run(partial(_fill_all, attributes, ranges)) if ranges else None

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raises `Forbidden` for the first LimitRange that the object exceeds."""
        ranges = self._of(attributes)
        return attributes.run(partial(_check_all, attributes, ranges)) if ranges else None

    def _of(self, attributes: Attributes) -> Sequence[Sequence[Tree]]:
        """Return the limits of each LimitRange that applies; none for an object that is being deleted."""
        changes = self._store.history(_RANGES).end
        if self._known[0] != changes:
            self._known = changes, self._read()
        found = self._known[1].get(attributes.namespace, ())
        return () if found and get_in(attributes.old_object, ("metadata", "deletionTimestamp")) else found

    def _read(self) -> Mapping[str, Sequence[Sequence[Tree]]]:
        """Return the limits of all ranges by namespace."""
        found: dict[str, list[Sequence[Tree]]] = {}
        for row in self._store.snapshot(_RANGES).items():
            limits = orjson.loads(row.data).get("spec", {}).get("limits") or ()
            found.setdefault(row.namespace, []).append(limits)
        return found


def _fill_all(attributes: Attributes, ranges: Iterable[Sequence[Tree]]) -> None:
    for limits in ranges:
        fill(attributes.tree, limits)


def _check_all(attributes: Attributes, ranges: Iterable[Sequence[Tree]]) -> None:
    for limits in ranges:
        if found := list(exceeded(attributes.tree, limits)):
            raise attributes.refused(all_errors(found))


def fill(pod: Tree, limits: Sequence[Tree]) -> None:
    """Set the defaults of a LimitRange for containers, in place, and list them in an annotation."""
    spec, defaulted = dict(pod.get("spec") or {}), []
    for field, called in _SORTS:
        if field in spec:
            containers = [dict(container) for container in spec[field]]
            defaulted += [line for each in containers for line in _fill_container(each, limits, called)]
            spec[field] = containers
    if defaulted:
        pod["spec"] = spec
        put_in(pod, _ANNOTATION, f"LimitRanger plugin set: {'; '.join(defaulted)}")


def _fill_container(container: Tree, limits: Sequence[Tree], called: str) -> Iterator[str]:
    for field, source, word in _DEFAULTS:
        defaults: dict[str, Any] = {}
        for limit in limits:
            if limit.get("type") == "Container":
                defaults.update(limit.get(source) or {})
        given = get_in(container, ("resources", field)) or {}
        lacking = {name: amount for name, amount in defaults.items() if name not in given}
        if lacking:
            put_in(container, ("resources", field), {**given, **lacking})
            yield f"{', '.join(sorted(lacking))} {word} for {called} {container.get('name', '')}"


def exceeded(tree: Tree, limits: Sequence[Tree]) -> Iterator[str]:
    """Yield the violated bounds of LimitRanges by a pod or a claim."""
    spec = tree.get("spec") or {}
    is_pod = tree.get("kind") == "Pod"
    for limit in limits:
        match limit.get("type"):
            case "Container" if is_pod:
                for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
                    resources = container.get("resources") or {}
                    yield from _outside(limit, resources.get("requests") or {}, resources.get("limits") or {})
            case "Pod" if is_pod:
                yield from _outside(limit, _of_pod(spec, "requests"), _of_pod(spec, "limits"))
            case "PersistentVolumeClaim" if not is_pod:
                yield from _outside_of_claim(limit, get_in(spec, ("resources", "requests")) or {})


def _outside_of_claim(limit: Tree, asked: Amounts) -> Iterator[str]:
    """Yield the violated bounds of one entry by a claim, which has only requests."""
    sides: tuple[str, Amounts, str, Amounts] = ("request", asked, "", {})
    for field, called, beyond in (("min", "minimum", operator.lt), ("max", "maximum", operator.gt)):
        for name, bound in (limit.get(field) or {}).items():
            if why := _problem(sides, name, bound, beyond):
                yield f"{called} {name} usage per {limit['type']} is {canonical(bound)}{why}"


def _of_pod(spec: Tree, field: str) -> Amounts:
    given = get_in(spec, ("resources", field)) or {}
    return {**total(spec, field), **{name: given[name] for name in _OF_PODS if name in given}}


def _outside(limit: Tree, requests: Amounts, limits: Amounts) -> Iterator[str]:
    """Yield the violated bounds of one entry by these resources."""
    per = limit["type"]
    for name, least in (limit.get("min") or {}).items():
        if why := _problem(("request", requests, "limit", limits), name, least, operator.lt):
            yield f"minimum {name} usage per {per} is {canonical(least)}{why}"
    for name, most in (limit.get("max") or {}).items():
        if why := _problem(("limit", limits, "request", requests), name, most, operator.gt):
            yield f"maximum {name} usage per {per} is {canonical(most)}{why}"
    for name, ratio in (limit.get("maxLimitRequestRatio") or {}).items():
        if why := _ratio_problem(requests.get(name), limits.get(name), ratio):
            yield f"{name} max limit to request ratio per {per} is {canonical(ratio)}, but {why}"


def _problem(
    sides: tuple[str, Amounts, str, Amounts], name: str, bound: str, beyond: Callable[[Decimal, Decimal], bool]
) -> str:
    """Return the violation of a bound by a required or optional amount, or an empty string."""
    first, required, second, optional = sides
    if name not in required:
        return f".  No {first} is specified"
    for side, amounts in ((first, required), (second, optional)):
        amount = amounts.get(name)
        if amount is not None and beyond(*_comparable(amount, bound)):
            return f", but {side} is {canonical(amount)}"
    return ""


def _ratio_problem(asked: str | None, allowed: str | None, ratio: str) -> str:
    request, limit = _comparable(asked or "0", allowed or "0")
    if not request:
        return "no request is specified or request is 0"
    if not limit:
        return "no limit is specified or limit is 0"
    found = float(limit) / float(request)
    return f"provided ratio is {found:f}" if found > float(parse(ratio).number) else ""


def _comparable(*amounts: str) -> tuple[Decimal, ...]:
    """Return amounts in thousandths, rounded up; in whole numbers if one is too large for that."""
    numbers = [parse(text).number for text in amounts]
    unit = 1000 if all(number <= _MOST_IN_THOUSANDTHS for number in numbers) else 1
    return tuple((number * unit).to_integral_value(ROUND_UP) for number in numbers)


def limit_ranger(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin LimitRanger."""
    limits = LimitRanges(parts.store)
    return AdmissionPlugin(
        "LimitRanger",
        mutating=(Rule(limits.admit, ("create",), _PODS), Rule(limits.admit, ("update",), _PODS, ("resize",))),
        validating=(
            Rule(limits.validate, ("create",), _PODS),
            Rule(limits.validate, ("update",), _PODS, ("resize",)),
            Rule(limits.validate, ("create", "update"), ("persistentvolumeclaims",)),
        ),
    )
