"""An independent protobuf encoder: the official package with descriptors made from our message table."""

from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import strategies as st

from apiserver_stub.watch_cache.row import Row
from controller_manager.common.api.protobuf.table import table

SCALARS = {"string": 9, "bool": 8, "int": 3, "double": 1, "bytes": 12, "raw": 12}
LIST, MESSAGE = 3, 11
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CAN_I = bytes.fromhex(
    "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a656374416363657373526576696577"
    "123f0a100a0012001a0022002a00320038004200"
    "12210a1f0a0764656661756c7412066372656174651a0022002a04706f647332003a00"
    "1a0808001200 1a002000 1a002200"
)


class Writer:
    """Encodes objects like clients do: scalars equal to their zero value are always written.

    A `whole` one writes as much as Go clients: every field that is not a pointer.
    """

    def __init__(self, whole: bool = False) -> None:
        self._whole = whole
        self.kinds: Mapping[str, str] = table().kinds
        self.messages: Mapping[str, Mapping[str, list[str]]] = table().messages
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

    def raw(self, name: str, tree: Mapping[str, Any]) -> bytes:
        """The message of an object."""
        message = self.message(name)
        self._fill(message, tree)
        written: bytes = message.SerializeToString(deterministic=True)
        return written

    def message(self, name: str) -> Any:
        """An empty message; field number 7 is its attribute `f7`."""
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
                if label in ([], ["required"]):
                    self._zero(message, attribute, kind, required=bool(label))
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

    def _zero(self, message: Any, attribute: str, kind: str, required: bool) -> None:
        if kind in ("string", "bool", "int", "double"):
            if self._whole or not required:
                setattr(message, attribute, type(getattr(message, attribute))())
        elif kind not in SCALARS and self._whole:
            self._value(getattr(message, attribute), kind, NOTHING.get(kind))

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
        if value is not None:
            self._fill(message, FIELDS[kind](value) if kind in FIELDS else value)
        elif kind not in FIELDS:
            self._fill(message, {})


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


# The value of unset fields, if not an empty message.
NOTHING: Mapping[str, Any] = {"api.resource.Quantity": "0", "util.intstr.IntOrString": 0}


@pytest.fixture(scope="session")
def whole_writer() -> Writer:
    return Writer(whole=True)


@pytest.fixture(scope="session")
def writer() -> Writer:
    return Writer()


# Possible fields of an object, drawn from the message table.
EXTREMES = st.sampled_from([-(1 << 63), (1 << 63) - 1, -1, 0])
FREE = st.sampled_from([{}, {"a": [1, None, "x"]}, {"b": {"c": True}}])
MOMENTS = st.datetimes(datetime(1001, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
KEYS = st.sampled_from(["a", "b/c", "Z", "ü", "𝄞"])  # no two that the package might sort differently
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "string": TEXTS,
    "bool": st.booleans(),
    "int": st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-200, 200) | EXTREMES,
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "bytes": st.sampled_from(["", "AA==", "AP8="]),
    "api.resource.Quantity": st.sampled_from(["0", "1", "100m", "1Gi"]),
    "util.intstr.IntOrString": TEXTS | st.integers(-(1 << 31), (1 << 31) - 1),
    "meta.v1.Time": MOMENTS.map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ")),
    "meta.v1.MicroTime": MOMENTS.map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")),
    "meta.v1.FieldsV1": FREE,
    "runtime.RawExtension": FREE,
    "apiextensions.v1.JSON": FREE | st.integers(0, 3) | TEXTS,
    "apiextensions.v1.JSONSchemaPropsOrArray": st.just([{"type": "string"}]),
    "apiextensions.v1.JSONSchemaPropsOrBool": st.booleans() | st.just({"type": "string"}),
    "apiextensions.v1.JSONSchemaPropsOrStringArray": st.just(["a"]),
    "meta.v1.ExtraValue": st.lists(TEXTS, max_size=2),
}


def draw_object(draw: Any, messages: Mapping[str, Any], message: str, depth: int) -> dict[str, Any]:
    fields = list(messages[message].values())
    embedded = [kind for name, kind, *_ in fields if not name]
    tree: dict[str, Any] = {}
    for kind in embedded:
        tree.update(draw_object(draw, messages, kind, depth))
    named = [field for field in fields if field[0]]
    chosen = draw(st.lists(st.sampled_from(named), max_size=3, unique_by=lambda field: field[0])) if named else []
    for name, kind, *label in chosen:
        if depth == 0 and kind not in VALUES:
            continue
        one = lambda kind=kind: draw(VALUES[kind]) if kind in VALUES else draw_object(draw, messages, kind, depth - 1)  # noqa: E731
        if label == ["list"]:
            tree[name] = [one() for _ in range(draw(st.integers(1, 2)))]
        elif label == ["map"]:
            tree[name] = {key: one() for key in draw(st.lists(KEYS, min_size=1, max_size=2, unique=True))}
        elif (value := one()) or label or kind not in ("string", "bool", "int", "double", "bytes"):
            tree[name] = value
    return tree


@pytest.fixture(scope="session")
def objects(writer: Writer) -> Any:
    """A strategy for objects of a message."""

    @st.composite
    def drawn(draw: Any, message: str) -> dict[str, Any]:
        return draw_object(draw, writer.messages, message, 4)

    return drawn


@pytest.fixture(scope="session")
def can_i() -> bytes:
    """The review that `kubectl auth can-i create pods` sends."""
    return CAN_I


class CachedRows(dict[Row, bytes]):
    """Encoded rows, as the cache of representations returns them."""

    def add(self, row: Row, encoded: bytes) -> None:
        self[row] = encoded


@pytest.fixture
def cached_rows() -> CachedRows:
    """An empty cache that stores whatever is encoded."""
    return CachedRows()
