"""Audit events of kube-apiserver 1.36 for these requests, in this order, under the policy beside them.

`received` means that there was also a RequestReceived event; `unlike` are fields that are not compared. Values that
differ from run to run are normalized, and messages are left out.
"""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from controller_manager.common.api.wire import Request
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.http import parse_target
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.whole_server.recorded_requests import normal

DATA = Path(__file__).parent / "data"
ROWS = [json.loads(line) for line in (DATA / "events.jsonl").read_text().splitlines()]
LATER = {"responseStatus", "requestObject", "responseObject", "annotations", "impersonatedUser", "stage", "objectRef"}
LEFT_OUT = {"message", "time", "volumes", "volumeMounts", "description", "managedFields", "clusterIP"}
OWN = {"kind", "apiVersion", "auditID", "requestReceivedTimestamp", "stageTimestamp"}
SECRET = {"token", "resourceVersion", "expirationTimestamp", "uid", "creationTimestamp", "deletionTimestamp"}


def request_of(row: dict[str, Any]) -> Request:
    path, query = parse_target(row["path"])
    headers = {"user-agent": "probe/1.0", "audit-id": row["id"]}
    body = row.get("text", "").encode() or base64.b64decode(row.get("base64", ""))
    if "body" in row:
        body = json.dumps(row["body"]).encode()
        headers["content-type"] = "application/json"
    if row.get("token", "admin-token"):
        headers["authorization"] = f"Bearer {row.get('token', 'admin-token')}"
    headers |= row.get("headers", {})
    headers = {name: value for name, value in headers.items() if value is not None}
    return Request(row["method"], path, query, headers, body, target=row["path"], remote="127.0.0.1")


def compared(event: dict[str, Any]) -> Any:
    return normalized(normal({name: value for name, value in event.items() if name not in OWN}))


def normalized(value: Any) -> Any:
    if isinstance(value, list):
        return [normalized(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, one in value.items():
        if name in SECRET and isinstance(one, str) and one:
            found[name] = "<some>"
        elif name == "annotations" and isinstance(one, dict):
            found[name] = {key: text for key, text in one.items() if "latency" not in key}
        elif name not in LEFT_OUT:
            found[name] = normalized(one)
    return found


async def send_request(api: ApiServer, request: Request) -> None:
    response = await api.handle(request)
    if not isinstance(response.body, bytes):
        async for _ in response.body:
            pass
        await response.body.aclose()


async def test_events_match_kube_apiserver(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text('admin-token,admin,admin,"system:masters"\njoe-token,joe,joe,""\n')
    log = tmp_path / "audit.log"
    options = FLAGS.parse([
        "--storage-backend=memory",
        f"--token-auth-file={tmp_path / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--audit-policy-file={DATA / 'policy.yaml'}",
        f"--audit-log-path={log}",
        "--audit-log-maxsize=0",
    ])  # fmt: skip
    api = build(options, Runtime("apiserver"), embedded_storage(MemoryBackend()))
    await api.start()
    async with Tasks() as tasks:
        tasks.start(api.run(), name="server")
        for row in ROWS:
            await send_request(api, request_of(row))
            await asyncio.sleep(0.5 if row["id"] == "crd" else 0)
    await api.stop()
    found: dict[str, list[Any]] = {}
    for line in log.read_text().splitlines():
        event = json.loads(line)
        found.setdefault(event["auditID"], []).append(event)
    for row in ROWS:
        events = found.get(row["id"], [])
        if row.get("received"):
            first, *events = events
            assert first["stage"] == "RequestReceived", row["id"]
            assert first["requestReceivedTimestamp"] == first["stageTimestamp"]
            kept = {name: value for name, value in events[-1].items() if name not in LATER | {"stageTimestamp"}}
            assert {name: value for name, value in first.items() if name in kept} == kept, row["id"]
        for event in events:
            for name in row.get("unlike", ()):
                del event[name]
        assert [compared(event) for event in events] == [compared(event) for event in row["events"]], row["id"]
