"""Invalid parameters: the code, reason and causes of kube-apiserver."""

from typing import Any

import pytest

from tests.apiserver_stub.api_client import CONFIGS, ApiClient

FORBIDDEN, UNSUPPORTED, LONG, BAD = (
    "FieldValueForbidden", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueInvalid",
)  # fmt: skip
MATCH, INITIAL = "resourceVersionMatch", "sendInitialEvents"
_WATCH = "watch=1&timeoutSeconds=1"


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ("resourceVersionMatch=Exact", [(FORBIDDEN, MATCH)]),
        ("resourceVersionMatch=NotOlderThan", [(FORBIDDEN, MATCH)]),
        ("resourceVersion=1&resourceVersionMatch=Foo", [(UNSUPPORTED, MATCH)]),
        ("resourceVersion=0&resourceVersionMatch=Exact", [(FORBIDDEN, MATCH)]),
        ("continue=abc&resourceVersionMatch=Exact", [(FORBIDDEN, MATCH), (FORBIDDEN, MATCH)]),
        ("sendInitialEvents=true", [(FORBIDDEN, INITIAL)]),
        ("sendInitialEvents=false", [(FORBIDDEN, INITIAL)]),
        (f"{_WATCH}&resourceVersionMatch=NotOlderThan", [(FORBIDDEN, MATCH)]),
        (f"{_WATCH}&resourceVersionMatch=Foo", [(FORBIDDEN, MATCH), (UNSUPPORTED, MATCH)]),
        (f"{_WATCH}&sendInitialEvents=true", [(FORBIDDEN, MATCH)]),
        (f"{_WATCH}&sendInitialEvents=false", [(FORBIDDEN, MATCH)]),
        (f"{_WATCH}&sendInitialEvents=true&resourceVersionMatch=Exact", [(FORBIDDEN, MATCH), (UNSUPPORTED, MATCH)]),
        (f"{_WATCH}&continue=abc", [(FORBIDDEN, MATCH)]),
        (f"{_WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=a", [(FORBIDDEN, MATCH)]),
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_invalid_list_options(api: ApiClient, method: str, query: str, causes: Any) -> None:
    if method == "DELETE" and "watch" in query:
        return
    answer = await api.ask(method, f"{CONFIGS}?{query}")
    _is_invalid(answer, "ListOptions", causes)


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        ("dryRun=Foo", [(UNSUPPORTED, "dryRun")]),
        ("dryRun=All&dryRun=Foo", [(UNSUPPORTED, "dryRun")]),
        ("dryRun=Foo&dryRun=All", [(UNSUPPORTED, "dryRun")]),
        ("fieldValidation=Foo", [(UNSUPPORTED, "fieldValidation")]),
        ("fieldValidation=strict", [(UNSUPPORTED, "fieldValidation")]),
        (f"fieldManager={'a' * 129}&dryRun=x&fieldValidation=y",
         [(LONG, "fieldManager"), (UNSUPPORTED, "dryRun"), (UNSUPPORTED, "fieldValidation")]),
        ("fieldManager=a\nb", [(BAD, "fieldManager")]),
    ],
)  # fmt: skip
async def test_invalid_write_options(api: ApiClient, query: str, causes: Any) -> None:
    await api.config("a")
    body = {"metadata": {"name": "a"}}
    patches = [("merge-patch+json", {}), ("strategic-merge-patch+json", {}), ("json-patch+json", [])]
    _is_invalid(await api.post(f"{CONFIGS}?{query}", body), "CreateOptions", causes)
    _is_invalid(await api.put(f"{CONFIGS}/a?{query}", body), "UpdateOptions", causes)
    for form, document in patches:
        _is_invalid(await api.patch(f"{CONFIGS}/a?{query}", document, form), "PatchOptions", causes)
    evict = "/api/v1/namespaces/default/pods/p/eviction"
    _is_invalid(await api.post(f"{evict}?{query}", {"metadata": {"name": "p"}}), "CreateOptions", causes)


def _is_invalid(answer: Any, options: str, causes: Any) -> None:
    status = answer.tree
    assert (answer.status, status["reason"]) == (422, "Invalid")
    assert (status["details"]["group"], status["details"]["kind"]) == ("meta.k8s.io", options)
    assert [(cause["reason"], cause["field"]) for cause in status["details"]["causes"]] == causes


@pytest.mark.parametrize("query", ["timeout=invalid", "timeout=5", "timeout=-"])
async def test_timeout_must_be_a_duration(api: ApiClient, query: str) -> None:
    await api.config("a")
    body = {"metadata": {"name": "a"}}
    for method, url in (("GET", CONFIGS), ("GET", f"{CONFIGS}/a"), ("PUT", f"{CONFIGS}/a"), ("DELETE", f"{CONFIGS}/a")):
        answer = await api.ask(method, f"{url}?{query}", body if method == "PUT" else None)
        assert (answer.status, answer.tree["reason"]) == (400, "BadRequest")
        assert answer.tree["message"].startswith("invalid timeout specified in the request URL")
    assert (await api.get(f"/version?{query}")).status == 400, "also where no resource is asked for"
    assert (await api.get(f"{CONFIGS}?{_WATCH}&{query}")).status == 200
    assert (await api.get(f"{CONFIGS}?timeout=1m30s")).status == 200


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "foo", "path": "/data/x"},
        {"path": "/data/x"},
        {"op": "remove"},
        {"op": "add", "path": "data", "value": 1},
    ],
)
async def test_unknown_json_patch_operation_is_invalid(api: ApiClient, operation: Any) -> None:
    await api.config("a")
    answer = await api.patch(f"{CONFIGS}/a", [operation], "json-patch+json")
    assert (answer.status, answer.tree["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("form", "body", "query"),
    [
        ("merge-patch+json", {"foo": 1}, "?fieldValidation=Strict"),
        ("merge-patch+json", b'{"data":{"y":"1","y":"2"}}', "?fieldValidation=Strict"),
        ("merge-patch+json", {"data": {"y": 1}}, ""),
        ("strategic-merge-patch+json", {"foo": 1}, "?fieldValidation=Strict"),
        ("strategic-merge-patch+json", {"data": "y"}, ""),
        ("json-patch+json", [{"op": "add", "path": "/foo", "value": 1}], "?fieldValidation=Strict"),
        ("json-patch+json", [{"op": "add", "path": "/data/y", "value": 1}], ""),
        ("merge-patch+json", {"kind": "Secret"}, ""),
    ],
)
async def test_patch_with_invalid_result_is_invalid(api: ApiClient, form: str, body: Any, query: str) -> None:
    await api.config("a", data={"x": "1"})
    answer = await api.patch(f"{CONFIGS}/a{query}", body, form)
    assert (answer.status, answer.tree["reason"]) == (422, "Invalid")
    assert [(c["reason"], c["field"]) for c in answer.tree["details"]["causes"]] == [(BAD, "patch")]
