"""Checks that a message has a place for all of an object, by types made from the table, which nothing unknown fits.

A reader passes over what it does not know, and cuts off what is too large: an object that does not fit exactly must
travel as JSON.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from types import GenericAlias, MappingProxyType
from typing import Annotated, Any

import msgspec

from controller_manager.api.protobuf.table import table

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
