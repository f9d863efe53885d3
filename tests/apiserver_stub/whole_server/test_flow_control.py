"""Flow control of a whole server: changed configuration, statuses, headers and rejections."""

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.request.api_request import RequestContext
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.http import fold_headers, repeated_headers
from tests.apiserver_stub.api_client import ADMIN, CONFIGS, ApiClient
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome, substituted, value_at

API = "/apis/flowcontrol.apiserver.k8s.io/v1"
JOE = Certificate("joe", ("tenants",))
ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
HEADERS = ("x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid")
LIMITED = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
REJECTING = {"type": "Limited", "limited": {**LIMITED, "limitResponse": {"type": "Reject"}}}


def schema(name: str, level: str, user: str = "joe") -> Any:
    rules = [{"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [ALL]}]
    return {
        "metadata": {"name": name},
        "spec": {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50, "rules": rules},
    }


async def ask(server: ApiServer, path: str = CONFIGS, method: str = "GET") -> Response:
    return await ApiClient(server, JOE).send(method, path)


async def uids(api: Any, schema: str, level: str) -> tuple[str, str]:
    first = (await api.get(f"{API}/flowschemas/{schema}")).tree
    second = (await api.get(f"{API}/prioritylevelconfigurations/{level}")).tree
    return first["metadata"]["uid"], second["metadata"]["uid"]


def flow_headers(response: Response) -> tuple[str | None, ...]:
    return tuple(response.headers.get(name) for name in HEADERS)


@pytest.mark.virtual
async def test_added_and_removed_schemas_and_levels_take_effect(started: Any) -> None:
    async with started() as api:
        assert flow_headers(await ask(api.server)) == await uids(api, "global-default", "global-default")
        assert flow_headers(await api.send("GET", CONFIGS)) == await uids(api, "exempt", "exempt")
        await api.post(f"{API}/flowschemas", schema("mine", "mine"))
        assert flow_headers(await ask(api.server)) == await uids(api, "global-default", "global-default"), (
            "it has no level yet"
        )
        await api.post(f"{API}/prioritylevelconfigurations", {"metadata": {"name": "mine"}, "spec": REJECTING})
        mine = await uids(api, "mine", "mine")
        assert flow_headers(await ask(api.server)) == mine
        assert flow_headers(await ask(api.server, "/api/v1/nothing")) == mine, "refusals name them too"
        assert flow_headers(await ask(api.server, "/version")) == await uids(api, "global-default", "global-default")
        await api.delete(f"{API}/prioritylevelconfigurations/mine")
        assert flow_headers(await ask(api.server)) == await uids(api, "global-default", "global-default")


@pytest.mark.virtual
async def test_schema_status_reports_missing_level(started: Any) -> None:
    async def condition(api: Any) -> tuple[str, str, list[str]]:
        await asyncio.sleep(1)
        found = (await api.get(f"{API}/flowschemas/mine")).tree
        (only,) = found["status"]["conditions"]
        managers = [each["manager"] for each in found["metadata"]["managedFields"] if each.get("subresource")]
        assert only["type"] == "Dangling"
        return only["status"], only["reason"], managers

    async with started() as api, Tasks() as tasks:
        tasks.start(api.server.run(), name="server")
        await api.post(f"{API}/flowschemas", schema("mine", "mine"))
        consumer = ["api-priority-and-fairness-config-consumer-v1"]
        assert await condition(api) == ("True", "NotFound", consumer)
        await api.post(f"{API}/prioritylevelconfigurations", {"metadata": {"name": "mine"}, "spec": REJECTING})
        assert await condition(api) == ("False", "Found", consumer)
        await api.delete(f"{API}/prioritylevelconfigurations/mine")
        assert await condition(api) == ("True", "NotFound", consumer)
        for _ in range(20):
            found = (await api.get(f"{API}/flowschemas/mine")).tree
            found["status"] = {"conditions": [{"type": "Dangling", "status": "Unknown"}]}
            await api.put(f"{API}/flowschemas/mine/status", found)
            await asyncio.sleep(0.1)
        found = (await api.get(f"{API}/flowschemas/mine")).tree
        assert found["status"]["conditions"][0]["status"] == "Unknown", "nobody is fought for ever"
        await asyncio.sleep(140)
        assert (await condition(api))[0] == "True"


@pytest.mark.virtual
@pytest.mark.one_process("it counts seats, of which each process has its part")
async def test_list_holds_seat_until_sent_and_watch_until_started(started: Any) -> None:
    async with started() as api:
        await api.post(f"{API}/prioritylevelconfigurations", {"metadata": {"name": "mine"}, "spec": REJECTING})
        await api.post(f"{API}/flowschemas", schema("mine", "mine"))
        for number in range(3):
            await api.post(CONFIGS, {"metadata": {"name": f"c{number}"}, "data": {"k": "v" * 300_000}})
        listed = await ask(api.server)
        assert not isinstance(listed.body, bytes)
        refused = await ask(api.server)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.body == b"Too many requests, please try again later.\n"
        assert flow_headers(refused) == flow_headers(listed)
        page = (await api.send("GET", "/metrics")).body
        assert isinstance(page, bytes)
        place = 'group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1"'
        assert f'apiserver_request_terminations_total{{code="429",component="apiserver",{place}}} 1' in page.decode()
        async for _ in listed.body:
            pass
        await listed.body.aclose()
        slowly = await ask(api.server)
        assert (await ask(api.server)).status == 429
        await asyncio.sleep(60)
        other = await ask(api.server)
        assert other.status == 200, "nobody has a seat for longer than a request may take"
        for listed in (slowly, other):
            assert not isinstance(listed.body, bytes)
            assert [chunk async for chunk in listed.body], "but whoever is slow gets all of it"
            await listed.body.aclose()
        watch = await ask(api.server, f"{CONFIGS}?watch=1")
        assert (await ask(api.server)).status == 429
        events = watch.body
        assert not isinstance(events, bytes)
        await anext(events)
        assert (await ask(api.server)).status == 429, "more of the state is to come"

        async def read() -> None:
            async for _ in events:
                pass

        async with Tasks() as tasks:
            tasks.start(read(), name="what comes")
            await asyncio.sleep(1)
            answered = await ask(api.server, f"{CONFIGS}/c0")
            assert answered.status == 200, "the watch has sent the initial state"
        await events.aclose()


@pytest.mark.virtual
async def test_without_fairness_responses_name_no_schema(started: Any) -> None:
    async with started("--enable-priority-and-fairness=false", "--max-requests-inflight=1") as api:
        response = await ask(api.server)
        assert (response.status, flow_headers(response)) == (200, (None, None))
        assert (await ask(api.server, "/debug/api_priority_and_fairness/dump_queues")).status == 404


@pytest.mark.virtual
async def test_dumps_are_served(started: Any) -> None:
    async with started() as api:
        response = await api.send("GET", "/debug/api_priority_and_fairness/dump_priority_levels")
        assert (response.status, response.body.splitlines()[2].split(b",")[0]) == (200, b"exempt")


# Results of kube-apiserver 1.36 for schemas and levels: kind, name, spec, code, and fields, reasons and messages of
# the causes; messages in our own words are left out.
RECORDED = [json.loads(line) for line in (Path(__file__).parent / "data/flow_control.jsonl").read_text().splitlines()]


async def test_schemas_and_levels_are_validated_like_upstream(started: Any) -> None:
    async with started() as api:
        for kind, name, spec, code, causes in RECORDED:
            body = {"metadata": {"name": name}, "spec": spec}
            found = await api.post(f"{API}/{kind.lower()}s?dryRun=All", body)
            assert (found.status, kind, spec) == (code, kind, spec)
            given = found.tree["details"].get("causes", []) if found.status == 422 else []
            reported = [[each["field"], each["reason"].removeprefix("FieldValue"), each["message"]] for each in given]
            in_words = {field for field, _, message in causes if message}
            shown = [[field, why, message if field in in_words else ""] for field, why, message in reported]
            assert sorted(shown) == sorted(causes), spec


async def test_mandatory_objects_allow_only_changed_exempt_shares(started: Any) -> None:
    async with started() as api:

        async def changed(path: str, **spec: Any) -> int:
            found = (await api.get(f"{API}/{path}")).tree
            found["spec"].update(spec)
            return (await api.put(f"{API}/{path}", found)).status

        assert await changed("flowschemas/catch-all", matchingPrecedence=9000) == 422
        assert await changed("flowschemas/exempt", rules=[]) == 422
        assert await changed("flowschemas/probes", matchingPrecedence=3) == 200
        exempt = {"nominalConcurrencyShares": 5, "lendablePercent": 50}
        assert await changed("prioritylevelconfigurations/exempt", exempt=exempt) == 200
        assert await changed("prioritylevelconfigurations/catch-all", limited={"nominalConcurrencyShares": 7}) == 422


REQUESTS = [
    json.loads(line) for line in (Path(__file__).parent / "data/flow_control_requests.jsonl").read_text().splitlines()
]


@pytest.mark.virtual
@pytest.mark.parametrize("row", REQUESTS, ids=lambda row: row["id"])
async def test_recorded_requests_are_classified_like_upstream(started: Any, row: Any) -> None:
    captured = {"RUN": "x1"}
    async with started("--authorization-mode=Node,RBAC") as api, Tasks() as tasks:
        tasks.start(api.server.run(), name="server")
        for step in row["steps"]:
            await asyncio.sleep(step.get("wait_s", 1))
            response = await api.server.handle(_request(step, captured))
            found = json.loads(response.body) if response.body.startswith(b"{") else {}
            captured |= {name: value_at(found, path) for name, path in step.get("capture", {}).items()}
            named = ("status", "body_out", "headers_out")
            expected = substituted({name: step[name] for name in named if name in step}, captured)
            assert {name: response.headers[name.lower()] for name in step.get("headers_out", {})} == expected.pop(
                "headers_out", {}
            )
            assert not difference({**step, **expected}, outcome(step, response.status, found, []))


def _request(step: Any, captured: Any) -> Request:
    asked = substituted({name: step.get(name) for name in ("path", "headers", "body")}, captured)
    sent_headers = [
        (name, one)
        for name, value in (asked["headers"] or {}).items()
        for one in ([value] if isinstance(value, str) else value)
    ]
    if "content_type" in step:
        sent_headers.append(("Content-Type", step["content_type"]))
    body = b"" if asked["body"] is None else json.dumps(asked["body"]).encode()
    headers, apart = fold_headers(sent_headers), repeated_headers(sent_headers)
    return Request(step["verb"], asked["path"], (), headers, body, ADMIN, apart)


@pytest.mark.virtual
async def test_ended_streams_leave_nothing_behind(started: Any, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    rules = [{"level": "Metadata"}]
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    async with started(f"--audit-policy-file={policy}", f"--audit-log-path={tmp_path / 'audit.log'}") as api:
        for number in range(3):
            body = {"metadata": {"name": f"c{number}"}, "data": {"k": "x" * 900_000}}
            assert (await api.post(CONFIGS, body)).status == 201
        watch = f"{CONFIGS}?watch=1&timeoutSeconds=1"
        for url in (CONFIGS, watch, CONFIGS, watch):
            stream = (await ask(api.server, url)).body
            assert not isinstance(stream, bytes)
            async for _ in stream:
                pass
            await stream.aclose()
        gc.collect()
        left = [one for one in gc.get_objects() if type(one) is RequestContext]
        assert [one for one in left if one.http.path == CONFIGS] == []
