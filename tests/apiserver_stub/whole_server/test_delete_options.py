"""Delete options in every media type, for objects and collections (API concepts, Delete options)."""

from typing import Any

import pytest

CONFIG = "/api/v1/namespaces/default/configmaps/a"
TYPE = b"\x0a\x02v1\x12\x0dDeleteOptions"
FOREGROUND = b"\x22\x0aForeground"
ENVELOPE = b"k8s\x00\x0a" + bytes([len(TYPE)]) + TYPE + b"\x12" + bytes([len(FOREGROUND)]) + FOREGROUND


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json", b'{"propagationPolicy":"Foreground"}'),
        ("application/json", b'{"propagationPolicy":"Foreground","unknown":{"a":1}}'),
        ("application/yaml", b"kind: DeleteOptions\npropagationPolicy: Foreground\n"),
        ("application/vnd.kubernetes.protobuf", ENVELOPE),
        ("application/cbor", b"\xa1\x71propagationPolicy\x6aForeground"),
    ],
)
async def test_delete_options_are_read_in_every_media_type(started: Any, media: str, body: bytes) -> None:
    flags = ("--feature-gates=CBORServingAndStorage=true",) if "cbor" in media else ()
    async with started(*flags) as api:
        await api.config("a")
        marked = await api.delete(CONFIG, body, content_type=media)
        assert (marked.status, marked.tree["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])


async def test_other_media_types_are_rejected(started: Any) -> None:
    async with started() as api:
        await api.config("a")
        assert (await api.delete(CONFIG, b"x", content_type="text/plain")).status == 415
        assert (await api.get(CONFIG)).status == 200
