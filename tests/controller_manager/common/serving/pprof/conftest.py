"""The pprof message types for the protobuf library, and fixtures that read profiles."""

import gzip
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# profile.proto of github.com/google/pprof: per message, its fields as number, type and a star if repeated.
MESSAGES = {
    "Profile": {
        "sample_type": "1 ValueType*",
        "sample": "2 Sample*",
        "mapping": "3 Mapping*",
        "location": "4 Location*",
        "function": "5 Function*",
        "string_table": "6 string*",
        "drop_frames": "7 int64",
        "keep_frames": "8 int64",
        "time_nanos": "9 int64",
        "duration_nanos": "10 int64",
        "period_type": "11 ValueType",
        "period": "12 int64",
        "comment": "13 int64*",
        "default_sample_type": "14 int64",
    },
    "ValueType": {"type": "1 int64", "unit": "2 int64"},
    "Sample": {"location_id": "1 uint64*", "value": "2 int64*", "label": "3 Label*"},
    "Label": {"key": "1 int64", "str": "2 int64", "num": "3 int64", "num_unit": "4 int64"},
    "Mapping": {
        "id": "1 uint64",
        "memory_start": "2 uint64",
        "memory_limit": "3 uint64",
        "file_offset": "4 uint64",
        "filename": "5 int64",
        "build_id": "6 int64",
        "has_functions": "7 bool",
        "has_filenames": "8 bool",
        "has_line_numbers": "9 bool",
        "has_inline_frames": "10 bool",
    },
    "Location": {"id": "1 uint64", "mapping_id": "2 uint64", "address": "3 uint64", "line": "4 Line*"},
    "Line": {"function_id": "1 uint64", "line": "2 int64"},
    "Function": {
        "id": "1 uint64",
        "name": "2 int64",
        "system_name": "3 int64",
        "filename": "4 int64",
        "start_line": "5 int64",
    },
}


@pytest.fixture(scope="session")
def read() -> Callable[[bytes], Any]:
    """Return a function that parses a profile with the protobuf library and fails on unknown fields."""
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="pprof", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, text in fields.items():
            number, kind = text.rstrip("*").split()
            one = message.field.add(name=field, number=int(number), label=3 if text.endswith("*") else 1)
            if kind in MESSAGES:
                one.type, one.type_name = one.TYPE_MESSAGE, f".pprof.{kind}"
            else:
                one.type = getattr(one, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    profile = message_factory.GetMessageClass(pool.FindMessageTypeByName("pprof.Profile"))

    def read(content: bytes) -> Any:
        found = profile.FromString(gzip.decompress(content))
        size = found.ByteSize()
        found.DiscardUnknownFields()
        assert found.ByteSize() == size
        return found

    return read
