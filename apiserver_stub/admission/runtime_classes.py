"""Additions of the runtime class to a new pod: the usual plug-in RuntimeClass; `with_class` is pure.

| the pod                          | is given                                                                  |
|----------------------------------|---------------------------------------------------------------------------|
| names no class                   | nothing; an overhead of its own is refused                                |
| names a class that is not there  | is refused                                                                |
| names a class                    | its overhead, node selector and tolerations; refused if it says otherwise |
"""

import orjson

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.trees import get_in
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.api.errors import ApiError, forbidden
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.api.quantity import parse

_CLASSES = f"runtimeclasses.node.{GROUP_DOMAIN}"


class RuntimeClasses:
    """A mutating plugin that reads classes from the store."""

    def __init__(self, store: WatchCache) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Give a new pod what its class says. Raises `Forbidden`."""
        pod = attributes.tree
        spec = pod.get("spec") or {}
        name = spec.get("runtimeClassName")
        if not name and "overhead" not in spec:
            return
        row = self._store.get(_CLASSES, name) if name else None
        if name and row is None:
            raise _refused(attributes, f"there is no RuntimeClass {name}")
        try:
            pod["spec"] = with_class(spec, orjson.loads(row.data) if row else {})
        except ValueError as error:
            raise _refused(attributes, str(error)) from None


def with_class(spec: Tree, of: Tree) -> Tree:
    """Return the spec of a pod of that class, which is empty for a pod of none. Raises `ValueError` if `spec`
    disagrees.
    """
    overhead = get_in(of, ("overhead", "podFixed")) or {}
    said = spec.get("overhead") or {}
    if said and _amounts(said) != _amounts(overhead):
        raise ValueError("spec.overhead is not what the runtime class of the pod says")
    selector, wanted = spec.get("nodeSelector") or {}, get_in(of, ("scheduling", "nodeSelector")) or {}
    for name in sorted(selector.keys() & wanted.keys()):
        if selector[name] != wanted[name]:
            raise ValueError(f"spec.nodeSelector[{name}] is {selector[name]}, and {wanted[name]} in the runtime class")
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in get_in(of, ("scheduling", "tolerations")) or () if one not in tolerations]
    added = {"overhead": overhead, "nodeSelector": {**selector, **wanted}, "tolerations": tolerations}
    return {**spec, **{name: value for name, value in added.items() if value}}


def _amounts(overhead: Tree) -> Tree:
    return {name: parse(text).number for name, text in overhead.items()}


def _refused(attributes: Attributes, why: str) -> ApiError:
    return forbidden(attributes.kind.group, attributes.kind.plural, attributes.name, why)
