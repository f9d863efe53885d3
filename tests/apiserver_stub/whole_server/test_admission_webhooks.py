"""Admission webhooks as recorded from Kubernetes 1.36: reviews and results."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.apiserver_stub.webhooks.webhook_server import Webhook
from tests.apiserver_stub.whole_server.recorded_requests import difference, normal, outcome, substituted

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "webhooks.jsonl").read_text().splitlines()]


class Hooks:
    """The webhooks of a row, by the last part of their path."""

    def __init__(self, hook: Webhook, answers: dict[str, Any]) -> None:
        hook.answer_request = self.answer
        self._answers = answers
        self._seen: list[dict[str, Any]] = []

    def take(self) -> list[dict[str, Any]]:
        """The reviews since the last time, in normal form."""
        seen, self._seen = self._seen, []
        return seen

    async def answer(self, request: web.BaseRequest, review: Any) -> Any:
        path = request.path_qs.strip("/")
        self._seen.append({"hook": path, "review": normal(review)})
        answer = self._answers.get(path.partition("?")[0], {"allowed": True})
        await asyncio.sleep(answer.get("delay_s", 0))
        data = answer["raw"].encode() if "raw" in answer else json.dumps(self._review(review, answer)).encode()
        return web.Response(status=answer.get("http_code", 200), body=data, content_type="application/json")

    def _review(self, review: Any, answer: Any) -> Any:
        uid = answer.get("uid", review["request"]["uid"])
        response = {"uid": uid, "allowed": answer.get("allowed", True)}
        response |= {name: answer[name] for name in ("warnings", "auditAnnotations", "status") if name in answer}
        if "patch" in answer:
            patch = answer["patch"] if isinstance(answer["patch"], str) else json.dumps(answer["patch"])
            response |= {"patch": b64encode(patch.encode()).decode(), "patchType": answer.get("patchType", "JSONPatch")}
        version, kind = answer.get("apiVersion", review["apiVersion"]), answer.get("kind", "AdmissionReview")
        return {"apiVersion": version, "kind": kind, "response": response}


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path) as found:
        yield found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"])
async def test_answers_match_kube_apiserver(started: Any, hook: Webhook, row: Any) -> None:
    values = {"RUN": "x1", "WEBHOOK_URL": f"https://127.0.0.1:{hook.port}", "WEBHOOK_CA": hook.ca}
    row = substituted(row, values)
    hooks = Hooks(hook, {name.replace("${RUN}", "x1"): answer for name, answer in row["hooks"].items()})
    async with started("--disable-admission-plugins=ServiceAccount") as api:
        for number, step in enumerate(row["steps"]):
            headers = {name: ",".join(value) if isinstance(value, list) else value for name, value in _headers(step)}
            query = f"?{step['query']}" if "query" in step else ""
            answer = await api.send(step["verb"], step["path"] + query, step.get("body"), **headers)
            shown_warnings = answer.repeated.get("warning", ())
            warnings = [text.removeprefix('299 - "')[:-1].replace('\\"', '"') for text in shown_warnings]
            found = outcome(step, answer.status, json.loads(answer.body), warnings)
            assert not difference(step, found), number
            if "status" in step:
                assert found["status"]["message"] == step["status"]["message"]
            reviews = hooks.take()
            if "reviews" in step:
                assert list(map(_normal_review, reviews)) == list(map(_normal_review, step["reviews"]))


def _headers(step: Any) -> list[tuple[str, Any]]:
    media = {"content_type": step["content_type"]} if "content_type" in step else {}
    return [*media.items(), *((name.lower(), value) for name, value in step.get("headers", {}).items())]


def _normal_review(seen: Any) -> Any:
    """The review of a webhook, without what the credentials of callers add to their names and groups."""
    user = seen["review"]["request"]["userInfo"]
    seen["review"]["request"]["userInfo"] = {name: user[name] for name in ("username", "groups")}
    return seen


CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIGS = "/api/v1/namespaces/default/configmaps"


async def mutating(api: Any, hook: Webhook, *resources: str, group: str = "") -> None:
    rules = [{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": resources}]
    usual = {"sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": rules}
    webhook = {"name": "w.h.test", "clientConfig": hook.config, **usual}
    code = (await api.post(CONFIGURATIONS, {"metadata": {"name": "m"}, "webhooks": [webhook]})).status
    assert code == 201


def patched(*operations: Any) -> Any:
    """An answer that patches every reviewed object."""
    patch = {"patch": b64encode(json.dumps(operations).encode()).decode(), "patchType": "JSONPatch"}

    def answer(review: Any) -> Any:
        response = {"uid": review["request"]["uid"], "allowed": True, **patch}
        return {**review, "response": response}

    return answer


async def test_fields_set_by_webhook_in_update_have_no_owner(started: Any, hook: Webhook) -> None:
    """As recorded: the caller still owns the fields it sent, changed or not."""
    async with started() as api:
        await api.config("a", labels={})
        hook.answer = patched({"op": "add", "path": "/metadata/labels", "value": {"hook": "1"}})
        await mutating(api, hook, "configmaps")
        sent = {"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "a"}}
        found = await api.put(CONFIGS + "/a?fieldManager=fm", sent)
        assert (found.status, found.tree["metadata"]["labels"]) == (200, {"hook": "1"})
        (owned,) = [each for each in found.tree["metadata"]["managedFields"] if each["manager"] == "fm"]
        assert owned["fieldsV1"] == {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}


@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        ({"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}, 400, "does not match the namespace"),
        ({"op": "replace", "path": "/metadata/name", "value": "b"}, 422, "metadata.name: Invalid value"),
        ({"op": "add", "path": "/metadata/uid", "value": "x"}, 422, "metadata.uid: Invalid value"),
        ({"op": "add", "path": "/metadata/resourceVersion", "value": "5"}, 409, "the object has been modified"),
        ({"op": "replace", "path": "/kind", "value": "Secret"}, 500, "Internal error occurred: "),
        ({"op": "remove", "path": "/kind"}, 200, ""),
        ({"op": "remove", "path": "/metadata"}, 422, "metadata.name"),
    ],
)
async def test_webhook_cannot_change_identity(
    started: Any, hook: Webhook, operation: Any, code: int, message: str
) -> None:
    """As recorded."""
    async with started() as api:
        before = (await api.config("a")).tree
        hook.answer = patched(operation)
        await mutating(api, hook, "configmaps")
        found = await api.put(CONFIGS + "/a", {"metadata": {"name": "a"}, "data": {"new": "1"}})
        assert found.status == code
        assert message in found.tree.get("message", "")
        after = (await api.get(CONFIGS + "/a")).tree
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["kind"] == "ConfigMap"


async def test_invalid_managed_fields_from_webhook_are_ignored(started: Any, hook: Webhook) -> None:
    async with started() as api:
        hook.answer = patched({"op": "add", "path": "/metadata/managedFields", "value": [{"operation": "Odd"}]})
        await mutating(api, hook, "configmaps")
        answer = await api.send("POST", CONFIGS, {"metadata": {"name": "a"}, "data": {"k": "a"}})
        assert answer.status == 201
        (entry,) = json.loads(answer.body)["metadata"]["managedFields"]
        assert entry["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}
        (warning,) = answer.repeated["warning"]
        assert "managedFields was in an invalid state after admission" in warning
