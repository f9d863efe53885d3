"""Field validation, rules 1 to 4."""

from typing import Any

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DUPLICATE = (
    b'{"metadata":{"name":"p","labels":{"a":"1","a":"2"}},"spec":{"containers":[{"name":"c","image":"i","image":"j"}]}}'
)


def pod(**more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "imagen": "x"}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], "dream": 1}, **more}


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


async def test_ignore_drops_unknown_fields(api: Any) -> None:
    """Rules 2 and 3, Ignore: without a warning."""
    answer = await api.post(f"{PODS}?fieldValidation=Ignore", pod(more=1))
    assert (answer.status, "warning" in answer.headers) == (201, False)
    assert not {"more"} & answer.tree.keys()
    assert "dream" not in answer.tree["spec"]
    assert "imagen" not in answer.tree["spec"]["containers"][0]


@pytest.mark.parametrize("level", ["", "?fieldValidation=Warn", "?fieldValidation="])
async def test_warn_reports_unknown_and_duplicate_fields(api: Any, level: str) -> None:
    """Rules 3 and 4, Warn (the default): one warning per unknown or duplicate field."""
    answer = await api.post(f"{PODS}{level}", pod())
    assert answer.status == 201
    assert answer.headers["warning"] == (
        '299 - "unknown field \\"spec.containers[0].imagen\\"", 299 - "unknown field \\"spec.dream\\""'
    )
    again = await api.post(f"{PODS}{level}", DUPLICATE.replace(b'"p"', b'"q"'))
    assert again.status == 201
    assert 'duplicate field \\"spec.containers[0].image\\"' in again.headers["warning"]
    assert 'duplicate field \\"metadata.labels.a\\"' in again.headers["warning"]
    assert again.tree["metadata"]["labels"] == {"a": "2"}


@pytest.mark.parametrize("body", [pod(), DUPLICATE], ids=["unknown", "duplicate"])
async def test_strict_rejects_unknown_and_duplicate_fields(api: Any, body: Any) -> None:
    """Rules 3 and 4, Strict; Errors: 400 Bad Request."""
    answer = await api.post(f"{PODS}?fieldValidation=Strict", body)
    assert (answer.status, answer.tree["reason"]) == (400, "BadRequest")
    expected = ["spec.containers[0].imagen", "spec.dream"] if body is not DUPLICATE else ["spec.containers[0].image"]
    assert all(f'"{path}"' in answer.tree["message"] for path in expected)
    assert (await api.get(f"{PODS}/p")).status == 404


@pytest.mark.parametrize("form", ["merge-patch+json", "strategic-merge-patch+json"])
async def test_patch_is_validated(api: Any, form: str) -> None:
    """Rule 4: on PATCH with an invalid result."""
    await api.config("a")
    body = {"data": {"k": "v"}, "dream": {"of": 1}}
    refused = await api.patch(f"{CONFIGS}/a?fieldValidation=Strict", body, form)
    assert (refused.status, refused.tree["reason"]) == (422, "Invalid")
    warned = await api.patch(f"{CONFIGS}/a", body, form)
    assert (warned.status, "dream" in warned.headers.get("warning", "")) == (200, True)
    assert "dream" not in warned.tree


@pytest.mark.parametrize("level", ["", "&fieldValidation=Ignore", "&fieldValidation=Strict"])
async def test_unknown_fields_cannot_be_applied(api: Any, level: str) -> None:
    """Such fields have no owner, at any level of validation."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dream": {"of": 1}}
    for _ in range(2):
        refused = await api.patch(f"{CONFIGS}/a?fieldManager=me{level}", body, "apply-patch+yaml")
        assert (refused.status, "dream" in refused.tree["message"]) == (500, True)
        await api.config("a") if _ == 0 else None


async def test_put_is_validated(api: Any) -> None:
    """Rule 4: on PUT."""
    await api.config("a")
    body = {"metadata": {"name": "a"}, "dream": 1}
    assert (await api.put(f"{CONFIGS}/a?fieldValidation=Strict", body)).status == 400
    assert 'unknown field \\"dream\\"' in (await api.put(f"{CONFIGS}/a", body)).headers["warning"]


async def test_unknown_level_is_rejected(api: Any) -> None:
    """Query parameters: `Ignore`, `Warn`, `Strict`."""
    answer = await api.post(f"{PODS}?fieldValidation=Maybe", pod())
    assert answer.status in (400, 422)
    assert "fieldValidation" in answer.tree["message"]


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
    told = ['unknown field "spec.dream"', 'duplicate field "spec.restartPolicy"']
    wanted = told if b"dream" in first else told[::-1]
    assert (answer.status, answer.tree["message"].endswith(f"strict decoding error: {', '.join(wanted)}")) == (
        400,
        True,
    )
