"""Questions in protobuf: what kubectl sends is read, and everything else is refused."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.questions import read_question
from controller_manager.api.errors import BadRequest

API_VERSION, KIND = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
# As `kubectl auth can-i create pods` sends it.
CAN_I = bytes.fromhex(
    "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a656374416363657373526576696577"
    "123f0a100a0012001a0022002a00320038004200"
    "12210a1f0a0764656661756c7412066372656174651a0022002a04706f647332003a00"
    "1a0808001200 1a002000 1a002200"
)


def test_a_question_of_kubectl_is_read() -> None:
    question = read_question(CAN_I, API_VERSION, KIND)
    asked = {name: value for name, value in question["spec"]["resourceAttributes"].items() if value}
    assert asked == {"namespace": "default", "verb": "create", "resource": "pods"}
    assert (question["apiVersion"], question["kind"]) == (API_VERSION, KIND)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"k8s\0", CAN_I.replace(b"Self", b"Help"), CAN_I[:60], b"k8s\0\xff", b"k8s\0" + b"\x80" * 20]
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        read_question(data, API_VERSION, KIND)


@settings(max_examples=200)
@given(st.binary(max_size=30), st.integers(0, len(CAN_I)))
def test_garbage_is_read_or_refused(garbage: bytes, at: int) -> None:
    with contextlib.suppress(BadRequest):
        read_question(CAN_I[:at] + garbage + CAN_I[at:], API_VERSION, KIND)
