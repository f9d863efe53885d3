"""Field validation of types, PUT and YAML; verbs/ checks the levels for POST and PATCH."""

from typing import Any

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize("level", ["Ignore", "Warn", "Strict", ""])
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [{"name": "c", "image": 5}]}, "spec.containers[0].image"),
        ({"containers": "many"}, "spec.containers"),
        ({"containers": [{"name": "c", "image": "i"}], "hostNetwork": "yes"}, "spec.hostNetwork"),
        ({"containers": [{"name": "c", "image": "i"}], "activeDeadlineSeconds": 1.5}, "spec.activeDeadlineSeconds"),
    ],
)
async def test_types_are_always_checked(api: Any, level: str, spec: Any, field: str) -> None:
    """Rule 1: a value of another type is an error at every level, and names the field."""
    answer = await api.post(f"{PODS}?fieldValidation={level}", {"metadata": {"name": "p"}, "spec": spec})
    assert (answer.status, answer.tree["reason"]) == (400, "BadRequest")
    assert field in answer.tree["message"]


async def test_missing_required_fields_are_reported(api: Any) -> None:
    """Rule 1: omitting a required field is an error; all causes come at once."""
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"image": "i"}, {}]}}
    answer = await api.post(PODS, body)
    assert (answer.status, answer.tree["reason"]) == (422, "Invalid")
    causes = {(cause["field"], cause["reason"]) for cause in answer.tree["details"]["causes"]}
    assert {(f"spec.containers[{i}].name", "FieldValueRequired") for i in (0, 1)} <= causes
    assert ("spec.containers[1].image", "FieldValueRequired") in causes


async def test_put_is_validated(api: Any) -> None:
    """Rule 4: on PUT."""
    await api.config("a")
    body = {"metadata": {"name": "a"}, "dream": 1}
    assert (await api.put(f"{CONFIGS}/a?fieldValidation=Strict", body)).status == 400
    assert 'unknown field \\"dream\\"' in (await api.put(f"{CONFIGS}/a", body)).headers["warning"]


async def test_yaml_is_validated(api: Any) -> None:
    """Rule 3, for a body in YAML."""
    text = b"metadata: {name: a}\ndata: {k: a}\ndata: {k: b}\ndream: 1\n"
    answer = await api.post(CONFIGS, text, content_type="application/yaml")
    assert answer.status == 201
    assert 'unknown field \\"dream\\"' in answer.headers["warning"]
    assert "duplicate" in answer.headers["warning"] or "already set" in answer.headers["warning"]


@pytest.mark.parametrize(("first", "second"), [
    (b'"dream":1,', b'"restartPolicy":"Always","restartPolicy":"Never",'),
    (b'"restartPolicy":"Always","restartPolicy":"Never",', b'"dream":1,'),
])  # fmt: skip
async def test_fields_are_reported_in_document_order(api: Any, first: bytes, second: bytes) -> None:
    body = b'{"metadata":{"name":"p"},"spec":{%b%b"containers":[{"name":"c","image":"i"}]}}' % (first, second)
    answer = await api.post(f"{PODS}?fieldValidation=Strict", body)
    shown = ['unknown field "spec.dream"', 'duplicate field "spec.restartPolicy"']
    wanted = shown if b"dream" in first else shown[::-1]
    assert (answer.status, answer.tree["message"].endswith(f"strict decoding error: {', '.join(wanted)}")) == (
        400,
        True,
    )
