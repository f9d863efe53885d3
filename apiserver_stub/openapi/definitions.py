"""The definitions of objects that descriptions refer to, by the names clients know them by."""

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any

import msgspec

from apiserver_stub.kinds.enums import ENUMS
from apiserver_stub.kinds.resource_info import ResourceInfo

Raw = Mapping[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
STATUS, PATCH, DELETE_OPTIONS, WATCH_EVENT = (
    META + name for name in ("Status", "Patch", "DeleteOptions", "WatchEvent")
)
# Where the groups whose definitions are not below `io.k8s.api.` keep them.
_HOMES = (
    ("meta.", "io.k8s.apimachinery.pkg.apis."),
    ("apiextensions.", "io.k8s.apiextensions-apiserver.pkg.apis."),
    ("apiregistration.", "io.k8s.kube-aggregator.pkg.apis."),
    ("", "io.k8s.api."),
)


class Definitions:
    """Raw definitions by full name.

    A definition has the keys of the facts: `type`, `format`, `ref`, `fields`, `items`, `values`, `required`, `enum`,
    `default`, `description`, `listType`, `listMapKeys`, `mapType`, `patchStrategy`, `patchMergeKey`, `unions`, and as
    `gvk` a list of (group, version, kind). `custom` are the names of those that are no part of the built-in API.
    """

    def __init__(self, definitions: Mapping[str, Raw], custom: Iterable[str] = ()) -> None:
        self._definitions = definitions
        self.custom = frozenset(custom)
        self._by_kind = {tuple(gvk): name for name, raw in definitions.items() for gvk in raw.get("gvk", ())}

    def __getitem__(self, name: str) -> Raw:
        return self._definitions[name]

    def __contains__(self, name: str) -> bool:
        return name in self._definitions

    def name(self, group: str, version: str, kind: str) -> str:
        """The name of what a kind is made of; of a kind nobody described, the group turned round as clients do it."""
        home = ".".join([*reversed(group.split(".")), version, kind])
        return self._by_kind.get((group, version, kind), home)

    def closure(self, names: Iterable[str]) -> list[str]:
        """The names and all they refer to, sorted."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(_refs(self._definitions[name]))
        return sorted(found)

    def with_kinds(self, kinds: Iterable[ResourceInfo]) -> "Definitions":
        """These, and one for every kind nobody described: an object that may hold anything, and its list."""
        found: dict[str, Raw] = {}
        for kind in kinds:
            name = self.name(kind.group, kind.version, kind.kind)
            if name not in self._definitions:
                found[name] = _anything(kind)
                found[f"{name}List"] = _list_of(kind, name)
        return Definitions({**self._definitions, **found}, found) if found else self


def built_in() -> Definitions:
    """The definitions of the built-in API, with the values the server allows and what people are told of them."""
    definitions = _load("definitions.json")
    for short, told in _load("descriptions.json").items():
        raw = definitions[full_name(short)]
        for name, sentence in told.items():
            (raw["fields"][name] if name else raw)["description"] = sentence
    for short, fields in ENUMS.items():
        described = definitions[full_name(short)]["fields"]
        for field, allowed in fields.items():
            raw = described[field.removesuffix("[]")]
            (raw["items"] if field.endswith("[]") else raw)["enum"] = allowed
    return Definitions(definitions)


def _load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(files(__package__).joinpath(name).read_bytes())
    return found


def full_name(short: str) -> str:
    """The name clients know a definition by: `core.v1.Pod` is `io.k8s.api.core.v1.Pod`."""
    return next(home + short for start, home in _HOMES if short.startswith(start))


def _refs(raw: Raw) -> Iterator[str]:
    for field in raw.get("fields", {}).values():
        found: Raw | None = field
        while found is not None:
            if "ref" in found:
                yield found["ref"]
            found = found.get("items") or found.get("values")


def _anything(kind: ResourceInfo) -> Raw:
    fields = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"ref": f"{META}ObjectMeta"}}
    gvk = [[kind.group, kind.version, kind.kind]]
    return {"type": "object", "gvk": gvk, "preserveUnknownFields": True, "fields": fields}


def _list_of(kind: ResourceInfo, name: str) -> Raw:
    fields = {
        "apiVersion": {"type": "string"},
        "items": {"type": "array", "items": {"ref": name}},
        "kind": {"type": "string"},
        "metadata": {"ref": f"{META}ListMeta"},
    }
    gvk = [[kind.group, kind.version, kind.list_kind]]
    return {"type": "object", "gvk": gvk, "required": ["items"], "fields": fields}
