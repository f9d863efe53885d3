"""An independent writer of protobuf: the official package, its descriptors made from the table of messages."""

from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from apiserver_stub.kinds.data import load

SCALARS = {"string": 9, "bool": 8, "int": 3, "double": 1, "bytes": 12, "raw": 12}
LIST, MESSAGE = 3, 11
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Writer:
    """Writes objects as clients do: a scalar that need not be told from its zero is always written."""

    def __init__(self) -> None:
        table = load("protobuf.json")
        self.kinds: Mapping[str, str] = table["kinds"]
        self.messages: Mapping[str, Mapping[str, list[str]]] = table["messages"]
        file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax="proto2")
        for name, fields in self.messages.items():
            self._describe(file.message_type.add(name=name.replace(".", "_")), fields)
        self._pool = descriptor_pool.DescriptorPool()
        self._pool.Add(file)

    def body(self, tree: Mapping[str, Any], **envelope: str) -> bytes:
        """The object in an envelope."""
        message = self.message(self.kinds[f"{tree['apiVersion']}/{tree['kind']}"])
        self._fill(message, tree)
        named = {"apiVersion": tree["apiVersion"], "kind": tree["kind"]}
        return self.wrap(message.SerializeToString(), named, **envelope)

    def wrap(self, raw: bytes, named: Mapping[str, str], **envelope: str) -> bytes:
        unknown = self.message("runtime.Unknown")
        unknown.f2 = raw
        unknown.f3, unknown.f4 = envelope.get("contentEncoding", ""), envelope.get("contentType", "")
        unknown.f1.f1, unknown.f1.f2 = named.get("apiVersion", ""), named.get("kind", "")
        written: bytes = unknown.SerializeToString()
        return b"k8s\0" + written

    def message(self, name: str) -> Any:
        """An empty message; the field of number 7 is its attribute `f7`."""
        found = self._pool.FindMessageTypeByName("all." + name.replace(".", "_"))
        return message_factory.GetMessageClass(found)()

    def _describe(self, message: Any, fields: Mapping[str, list[str]]) -> None:
        for number, (_, kind, *label) in fields.items():
            field = message.field.add(
                name=f"f{number}", number=int(number), label=LIST if label in (["list"], ["map"]) else 1
            )
            if label == ["map"]:
                entry = message.nested_type.add(name=f"F{number}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, label=1, type=9)
                self._type(entry.field.add(name="value", number=2, label=1), kind)
                field.type, field.type_name = MESSAGE, f".all.{message.name}.{entry.name}"
            else:
                self._type(field, kind)

    def _type(self, field: Any, kind: str) -> None:
        if kind in SCALARS:
            field.type = SCALARS[kind]
        else:
            field.type, field.type_name = MESSAGE, ".all." + kind.replace(".", "_")

    def _fill(self, message: Any, tree: Mapping[str, Any]) -> None:
        message.SetInParent()
        for number, (name, kind, *label) in self._fields(message):
            attribute, value = f"f{number}", tree.get(name)
            if not name:
                self._fill(getattr(message, attribute), tree)
            elif value is None:
                if not label and kind in ("string", "bool", "int"):
                    setattr(message, attribute, type(getattr(message, attribute))())
            elif label == ["list"]:
                for item in value:
                    self._add(getattr(message, attribute), kind, item)
            elif label == ["map"]:
                for key, item in value.items():
                    self._enter(getattr(message, attribute), kind, key, item)
            elif kind in SCALARS:
                setattr(message, attribute, _scalar(kind, value))
            else:
                self._value(getattr(message, attribute), kind, value)

    def _fields(self, message: Any) -> Any:
        return self.messages[self._name(message)].items()

    def _name(self, message: Any) -> str:
        return next(name for name in self.messages if name.replace(".", "_") == message.DESCRIPTOR.name)

    def _add(self, items: Any, kind: str, value: Any) -> None:
        if kind in SCALARS:
            items.append(_scalar(kind, value))
        else:
            self._value(items.add(), kind, value)

    def _enter(self, items: Any, kind: str, key: str, value: Any) -> None:
        if kind in SCALARS:
            items[key] = _scalar(kind, value)
        else:
            self._value(items[key], kind, value)

    def _value(self, message: Any, kind: str, value: Any) -> None:
        message.SetInParent()
        self._fill(message, FIELDS[kind](value) if kind in FIELDS else value)


def _scalar(kind: str, value: Any) -> Any:
    return b64decode(value) if kind == "bytes" else value


def _moment(text: str) -> dict[str, int]:
    moment = datetime.fromisoformat(text)
    return {"seconds": (moment - EPOCH) // timedelta(seconds=1), "nanos": moment.microsecond * 1000}


def _raw(value: Any) -> dict[str, bytes]:
    return {"raw": orjson.dumps(value)}


def _several(value: Any) -> dict[str, Any]:
    return {"several": value} if isinstance(value, list) else {"schema": value}


FIELDS: dict[str, Any] = {
    "api.resource.Quantity": lambda value: {"text": value},
    "util.intstr.IntOrString": lambda value: (
        {"type": 1, "text": value} if isinstance(value, str) else {"type": 0, "number": value}
    ),
    "meta.v1.Time": _moment,
    "meta.v1.MicroTime": _moment,
    "meta.v1.FieldsV1": _raw,
    "runtime.RawExtension": _raw,
    "apiextensions.v1.JSON": _raw,
    "apiextensions.v1.JSONSchemaPropsOrArray": _several,
    "apiextensions.v1.JSONSchemaPropsOrStringArray": _several,
    "apiextensions.v1.JSONSchemaPropsOrBool": lambda value: (
        {"allows": value} if isinstance(value, bool) else {"allows": True, "schema": value}
    ),
    "meta.v1.ExtraValue": lambda value: {"items": value},
}


@pytest.fixture(scope="session")
def writer() -> Writer:
    return Writer()
