"""Messages of gRPC services, compared with the official package and handwritten descriptors."""

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from controller_manager.common.api.protobuf.services import Message, service

FIELD = descriptor_pb2.FieldDescriptorProto
Rows = dict[str, tuple[int, int, str]]
PACKET: dict[str, Rows] = {
    "Data": {
        "connectID": (1, FIELD.TYPE_INT64, ""),
        "error": (2, FIELD.TYPE_STRING, ""),
        "data": (3, FIELD.TYPE_BYTES, ""),
    },
    "CloseDial": {"random": (1, FIELD.TYPE_INT64, "")},
    "Drain": {},
    "Packet": {
        "type": (1, FIELD.TYPE_INT32, ""),
        "data": (4, FIELD.TYPE_MESSAGE, "Data"),
        "closeDial": (7, FIELD.TYPE_MESSAGE, "CloseDial"),
        "drain": (8, FIELD.TYPE_MESSAGE, "Drain"),
    },
}  # fmt: skip
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def official(messages: dict[str, Rows], name: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    for message, rows in messages.items():
        described = file.message_type.add(name=message)
        for field, (number, kind, other) in rows.items():
            described.field.add(
                name=field,
                number=number,
                type=kind,
                label=FIELD.LABEL_OPTIONAL,
                type_name=f".a.{other}" if other else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"a.{name}"))


def present(message: Any) -> dict[str, Any]:
    """Return the fields that are set in an official message."""
    return {
        field.name: present(value) if field.type == FIELD.TYPE_MESSAGE else value
        for field, value in message.ListFields()
    }


OFFICIAL = official(PACKET, "Packet")
PACKETS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.integers(1, 6)}, optional={"data": st.fixed_dictionaries({"connectID": INT64, "data": st.binary()})}
    ),
    st.fixed_dictionaries({"type": st.just(5), "closeDial": st.fixed_dictionaries({"random": INT64})}),
    st.just({"type": 6, "drain": {}}),
)


def without_zeros(tree: Any) -> Any:
    return (
        {k: without_zeros(v) for k, v in tree.items() if v or isinstance(v, dict)} if isinstance(tree, dict) else tree
    )


def packet() -> Message:
    return service("konnectivity")["Proxy"].request


@given(PACKETS)
def test_messages_round_trip_with_official_package(tree: dict[str, Any]) -> None:
    written = packet().write(tree)
    decoded = OFFICIAL.FromString(written)
    assert present(decoded) == without_zeros(tree)
    assert packet().read(written) == tree
    assert packet().read(decoded.SerializeToString()) == without_zeros(tree)


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_raise_value_error(data: bytes) -> None:
    try:
        found = packet().read(data)
    except (ValueError, UnicodeDecodeError):
        return
    assert isinstance(found, dict)


def test_maps_lists_and_times_round_trip() -> None:
    answer = service("kms_v2")["Encrypt"].answer
    tree = {"ciphertext": b"\0\xff", "key_id": "k", "annotations": {"a": b"\1", "b": b"\2"}}
    assert answer.read(answer.write(tree)) == tree
    keys = service("external_jwt")["FetchKeys"].answer
    tree = {
        "keys": [{"key_id": "1", "key": b"x", "exclude_from_oidc_discovery": True}, {"key_id": "2"}],
        "data_timestamp": {"seconds": 1_700_000_000, "nanos": 5},
        "refresh_hint_seconds": 60,
    }
    assert keys.read(keys.write(tree)) == tree


def test_method_paths_contain_package_and_service() -> None:
    assert service("konnectivity")["Proxy"].path == "/ProxyService/Proxy"
    assert service("kms_v2")["Status"].path == "/v2.KeyManagementService/Status"
    assert service("external_jwt")["Sign"].path == "/v1.ExternalJWTSigner/Sign"
    with pytest.raises(FileNotFoundError):
        service("unknown")


def test_message_with_too_many_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        packet().read(b"\x08\x01" * 1_000_001)
