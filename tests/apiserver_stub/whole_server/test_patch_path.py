"""The table of the files that a PATCH of a Deployment passes (docs/architecture.md) matches a traced request."""

import json
import re
import sys
from pathlib import Path
from types import FrameType

from controller_manager.common.api.wire import Request
from tests.apiserver_stub.api_client import ADMIN, ApiClient
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.multi_worker_server import build_server
from tests.apiserver_stub.running_server import FLAGS_OF_ALL

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \| .+ \|$", re.MULTILINE)
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LABELS = {"app": "web"}
SPEC = {
    "selector": {"matchLabels": LABELS},
    "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "a", "image": "b"}]}},
}


def documented() -> list[tuple[str, str]]:
    rows = ROW.findall((ROOT / "docs/architecture.md").read_text())
    assert [int(number) for number, *_ in rows] == list(range(1, len(rows) + 1))
    return [(file, function) for _, file, function in rows]


async def test_deployment_patch_passes_documented_functions_in_order() -> None:
    rows = documented()
    assert len(rows) <= 25
    assert rows.pop(0)[0] == "controller_manager/common/serving/connection.py"  # this server has no connections
    passed: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            passed.setdefault((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    server = build_server(MemoryBackend(), FLAGS_OF_ALL, "")
    await server.start()
    await ApiClient(server).post(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": SPEC})
    headers = {"content-type": "application/strategic-merge-patch+json"}
    body = json.dumps({"spec": {"replicas": 2}}).encode()
    request = Request("PATCH", f"{DEPLOYMENTS}/web", (), headers, body, ADMIN)
    sys.setprofile(note)
    try:
        response = await server.handle(request)
    finally:
        sys.setprofile(None)
    server.end_streams()
    await server.stop()
    assert response.status == 200
    assert [row for row in passed if row in rows] == rows
