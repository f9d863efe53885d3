"""The table of messages, written by `apiserver_stub/kinds/data/reduce.py` from public API descriptions, and the check
that a message has a place for all of an object.

`kinds` has the message of each kind by `version/kind` or `group/version/kind`, or by the kind alone where it is in
every version; `messages` of each message the fields by number, as `[name, type, label]`.

A type is `string`, `bool`, `int`, `double`, `bytes` (base64 in JSON), `raw` (bytes as they are) or another message.
A label is `list`, `map` (from strings), `pointer` (written only when it is there, so that its zero says something),
`required` (always written, and its zero is told in JSON) or nothing (always written; a scalar's zero is absence in
JSON); a field without a name is a message whose fields are the outer object's.

A reader of protobuf passes over what it does not know, and cuts off what is too large: an object that does not fit
exactly must travel as JSON. Types made from the table, which nothing unknown fits, tell.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from types import GenericAlias, MappingProxyType
from typing import Annotated, Any

import msgspec


class Table(msgspec.Struct, frozen=True):
    """All that is known about messages."""

    kinds: dict[str, str]
    messages: dict[str, dict[str, list[str]]]

    def message_of(self, api_version: str, kind: str) -> str | None:
        """Return the message of objects of a type."""
        return self.kinds.get(f"{api_version}/{kind}") or self.kinds.get(kind)


@cache
def table() -> Table:
    """Read when somebody first asks: most commands never do."""
    return msgspec.json.decode(files(__package__).joinpath("messages.json").read_bytes(), type=Table)


_Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]  # the table does not tell which may be larger
_Time = Annotated[datetime, msgspec.Meta(tz=True)]

_TYPES: Mapping[str, Any] = MappingProxyType({
    "string": str,
    "bool": bool,
    "int": _Int,
    "double": float,
    "bytes": bytes,
    "api.resource.Quantity": str,
    "apiextensions.v1.JSON": Any,
    "meta.v1.ExtraValue": list[str],
    "meta.v1.FieldsV1": Any,
    "meta.v1.MicroTime": _Time,
    "meta.v1.Time": _Time,
    "runtime.RawExtension": Any,
    "util.intstr.IntOrString": _Int | str,
})  # fmt: skip
"""The JSON types of scalars, and of messages that are no objects in JSON."""


def fits(api_version: str, kind: str, data: bytes) -> bool:
    """Tell whether the message of a kind says all that the JSON of an object says; False for kinds without one."""
    decoder = _decoder(api_version, kind)
    if decoder is None:
        return False
    try:
        decoder.decode(data)
    except msgspec.DecodeError:
        return False
    return True


@lru_cache(maxsize=512)
def _decoder(api_version: str, kind: str) -> msgspec.json.Decoder[Any] | None:
    name = table().message_of(api_version, kind)
    if name is None:
        return None
    try:
        shape = _Shapes().of(name)
    except RecursionError:
        return None  # a message within itself, as in descriptions of custom kinds
    own = [("apiVersion", str, ""), ("kind", str, "")]
    return msgspec.json.Decoder(msgspec.defstruct(kind, own, bases=(shape,), forbid_unknown_fields=True))


class _Shapes:
    """The types of the messages one kind consists of; they are not kept once its decoder is made."""

    def __init__(self) -> None:
        self._made: dict[str, type[msgspec.Struct]] = {}
        self._within: set[str] = set()

    def of(self, name: str) -> type[msgspec.Struct]:
        """Return the type of a message. Raises `RecursionError` for one that holds itself."""
        if name in self._within:
            raise RecursionError(name)
        if name not in self._made:
            self._within.add(name)
            fields = [(field, kind | None, None) for field, kind in self._fields(name).items()]
            self._made[name] = msgspec.defstruct(name.replace(".", "_"), fields, forbid_unknown_fields=True, gc=False)
            self._within.remove(name)
        return self._made[name]

    def _fields(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field, kind, *label in table().messages[name].values():
            if field:
                found[field] = self._type(kind, *label)
            else:
                found.update(self._fields(kind))
        return found

    def _type(self, kind: str, label: str = "") -> Any:
        found = _TYPES[kind] if kind in _TYPES else self.of(kind)
        if label == "list":
            return GenericAlias(list, (found,))
        return GenericAlias(dict, (str, found)) if label == "map" else found
