"""Decoding of JSON as Go servers write it; values of a wrong type are refused with their path."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller_manager.common.api.autoscaling import HORIZONTAL_POD_AUTOSCALERS
from controller_manager.common.api.core import Pod
from controller_manager.common.api.decode import Decoder
from controller_manager.common.api.model import Model, Object


class Part(Model):
    name: str
    count: int = 1
    share: float = 0.5
    values: tuple[str, ...] = ()


class Custom(Object):
    """A model that an author of controllers could write."""

    spec: Mapping[str, Any] = {}
    anything: Any = 5
    left: msgspec.Raw = msgspec.Raw(b"")
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, Part] = {}
    lists: Mapping[str, tuple[str, ...]] = {}
    amounts: Mapping[str, str] = {}
    amount: str | int | float | None = None
    data: bytes = b""
    flag: bool = True


CUSTOM = Decoder(Custom)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (b'{"flag":null,"data":null,"parts":null,"byName":null,"part":null,"amounts":null}', b"{}"),
        (b'{"parts":[null,{"name":"a","count":null,"values":null}]}', b'{"parts":[{"name":"a"}]}'),
        (
            b'{"byName":{"a":null,"b":{"name":"b","values":["x",null]}}}',
            b'{"byName":{"b":{"name":"b","values":["x"]}}}',
        ),
        (b'{"lists":{"a":null,"b":["c"]}}', b'{"lists":{"b":["c"]}}'),
        (b'{"part":{"name":"a","share":null}}', b'{"part":{"name":"a"}}'),
        (b'{"amounts":{"cpu":2,"memory":1.5}}', b'{"amounts":{"cpu":"2","memory":"1.5"}}'),
        (b'{"part":{"name":"a","count":"3"}}', b'{"part":{"name":"a","count":3}}'),
        (b'{"part":{"name":"a","count":3.0,"new":[{}]},"newer":1}', b'{"part":{"name":"a","count":3}}'),
        (b'{"amount":"1","flag":null}', b'{"amount":"1"}'),
        (b'{"amount":1,"flag":null}', b'{"amount":1}'),
        (b'{"metadata":{"labels":null,"ownerReferences":null,"finalizers":null,"generation":null}}', b"{}"),
    ],
)
def test_go_nulls_and_zero_values_decode_to_defaults(written: bytes, meant: bytes) -> None:
    assert CUSTOM.decode(written) == CUSTOM.strictly(meant)


def test_untyped_fields_keep_their_nulls() -> None:
    found = CUSTOM.decode(b'{"spec":{"a":null,"b":[null]},"anything":null,"left":{"c":null},"flag":null}')
    assert found.spec == {"a": None, "b": [None]}
    assert found.anything is None
    assert msgspec.json.decode(found.left) == {"c": None}


def test_raw_bytes_are_preserved() -> None:
    data = b'{"spec": {"a": null}, "parts": null}'
    assert Custom.decode(data).raw == data


@pytest.mark.parametrize(
    ("written", "path"),
    [
        (b'{"parts":[{"name":"a","count":"three"}],"flag":null}', r"\$\.parts\[0\]\.count"),
        (b'{"parts":[{"name":null}]}', r"name.* - at `\$\.parts\[0\]`"),
        (b'{"parts":{}}', r"\$\.parts"),
        (b'{"flag":1}', r"\$\.flag"),
        (b'{"part":{"name":"a","count":3.5}}', r"\$\.part\.count"),
    ],
)
def test_wrong_type_is_refused_with_path(written: bytes, path: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=path):
        CUSTOM.decode(written)


def test_new_autoscaler_with_null_metrics_decodes() -> None:
    status = b'{"observedGeneration":null,"currentReplicas":0,"desiredReplicas":0,"currentMetrics":null}'
    found = HORIZONTAL_POD_AUTOSCALERS.type.decode(b'{"metadata":{"name":"a"},"status":' + status + b"}")
    assert found.status.current_metrics == ()


def test_numeric_requests_decode_as_quantities() -> None:
    found = Pod.decode(b'{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":2}}}]}}')
    assert found.spec.containers[0].resources is not None
    assert found.spec.containers[0].resources.requests == {"cpu": "2"}
