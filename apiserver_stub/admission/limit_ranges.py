"""Defaults and bounds that the LimitRanges of a namespace give its pods and claims.

The usual plug-in LimitRanger; `fill` and `exceeded` are pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.defaults_pod import total
from apiserver_stub.kinds.trees import get_in, put_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.errors import forbidden
from controller_manager.api.platform import PLATFORM_DOMAIN
from controller_manager.api.quantity import Quantity, parse

_RANGES, _PODS = "limitranges", ("pods",)
_TOLD = ("metadata", "annotations", f"{PLATFORM_DOMAIN}/limit-ranger")
_SORTS = (("containers", "container"), ("initContainers", "init container"))
_DEFAULTS = (("requests", "defaultRequest", "request"), ("limits", "default", "limit"))

Amounts = Mapping[str, str]


class LimitRanges:
    """Plugin of new pods, of pods that are resized, and of claims; reads ranges from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Give the containers of a pod what they do not say themselves."""
        for limits in self._of(attributes):
            fill(attributes.tree, limits)

    async def validate(self, attributes: Attributes) -> None:
        """Raises `Forbidden` for what exceeds the limits."""
        found = [why for limits in self._of(attributes) for why in exceeded(attributes.tree, limits)]
        if found:
            kind, why = attributes.kind, found[0] if len(found) == 1 else f"[{', '.join(found)}]"
            raise forbidden(kind.group, kind.plural, attributes.name, why)

    def _of(self, attributes: Attributes) -> Iterator[Sequence[Tree]]:
        """Yield the limits of each range that concerns an object; what is going is let go."""
        if not self._store.count(_RANGES) or get_in(attributes.old_object, ("metadata", "deletionTimestamp")):
            return
        for row in self._store.snapshot(_RANGES).items(prefix=f"{attributes.namespace}/"):
            yield orjson.loads(row.data).get("spec", {}).get("limits") or ()


def fill(pod: Tree, limits: Sequence[Tree]) -> None:
    """Give containers the defaults of a LimitRange, in place, and note in an annotation which."""
    spec, told = dict(pod.get("spec") or {}), []
    for field, called in _SORTS:
        if field in spec:
            containers = [dict(container) for container in spec[field]]
            told += [line for each in containers for line in _fill_container(each, limits, called)]
            spec[field] = containers
    if told:
        pod["spec"] = spec
        put_in(pod, _TOLD, f"LimitRanger plugin set: {'; '.join(told)}")


def _fill_container(container: Tree, limits: Sequence[Tree], called: str) -> Iterator[str]:
    for field, source, word in _DEFAULTS:
        defaults: dict[str, Any] = {}
        for limit in limits:
            if limit.get("type") == "Container":
                defaults.update(limit.get(source) or {})
        said = get_in(container, ("resources", field)) or {}
        lacking = {name: amount for name, amount in defaults.items() if name not in said}
        if lacking:
            put_in(container, ("resources", field), {**said, **lacking})
            yield f"{', '.join(sorted(lacking))} {word} for {called} {container.get('name', '')}"


def exceeded(tree: Tree, limits: Sequence[Tree]) -> Iterator[str]:
    """Yield every bound of a LimitRange that a pod or a claim does not keep."""
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
                asked = get_in(spec, ("resources", "requests")) or {}
                yield from _outside({**limit, "maxLimitRequestRatio": {}}, asked, asked)


def _of_pod(spec: Tree, field: str) -> Amounts:
    return {**total(spec, field), **(get_in(spec, ("resources", field)) or {})}


def _outside(limit: Tree, requests: Amounts, limits: Amounts) -> Iterator[str]:
    """Yield the bounds of one entry that these resources do not keep."""
    per = limit["type"]
    for name, least in (limit.get("min") or {}).items():
        found = [amount for amount in (requests.get(name), limits.get(name)) if amount is not None]
        if name not in requests:
            yield f"minimum {name} usage per {per} is {least}, and no request says how much"
        elif smaller := [amount for amount in found if _of(amount) < _of(least)]:
            yield f"minimum {name} usage per {per} is {least}, not {smaller[0]}"
    for name, most in (limit.get("max") or {}).items():
        found = [amount for amount in (limits.get(name), requests.get(name)) if amount is not None]
        if name not in limits:
            yield f"maximum {name} usage per {per} is {most}, and no limit says how much"
        elif greater := [amount for amount in found if _of(amount) > _of(most)]:
            yield f"maximum {name} usage per {per} is {most}, not {greater[0]}"
    for name, ratio in (limit.get("maxLimitRequestRatio") or {}).items():
        asked, allowed = requests.get(name, "0"), limits.get(name, "0")
        if not (_of(asked) and _of(allowed)):
            yield f"{name} max limit to request ratio per {per} is {ratio}, and there are not both"
        elif _of(allowed) / _of(asked) > _of(ratio):
            yield f"{name} max limit to request ratio per {per} is {ratio}, not {_of(allowed) / _of(asked):f}"


def _of(text: str) -> Any:
    quantity: Quantity = parse(text)
    return quantity.number


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
