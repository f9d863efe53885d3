"""Errors of kube-apiserver 1.36 for wrong paths and invalid options, as recorded."""

import json
from pathlib import Path
from typing import Any

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "refusals.jsonl").read_text().splitlines()]
GIVEN = [row["given"] for row in ROWS if "given" in row]
ASKED = [row for row in ROWS if "given" not in row]


async def test_errors_match_kube_apiserver(make_cluster: Any) -> None:
    """Messages are compared if they are about this server, and not about a failed connection."""
    async with make_cluster("--disable-admission-plugins=ServiceAccount") as cluster:
        for method, path, body in GIVEN:
            kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
            code, answer = await cluster(method, path, body, content_type=kind)
            assert code in (200, 201), answer
        different = [(row, found) for row in ASKED if (found := await _answer(cluster, row)) is not None]
        assert different == []
        assert len(ASKED) > 250


async def _answer(cluster: Any, row: dict[str, Any]) -> object:
    """Return the answer to a row if it differs from the recorded one."""
    headers = {name.replace("-", "_"): value for name, value in row.get("headers", {}).items()}
    response = await cluster.send(row["method"], row["path"], **headers)
    body = response.body
    answer = json.loads(body) if body and row["method"] != "HEAD" else {}
    message, wanted = answer.get("message", ""), row.get("message", "")
    if row.get("beginning"):
        message = message[: len(wanted)]
    found = (
        response.status,
        answer.get("reason", ""),
        message,
        response.headers.get("location"),
        answer.get("details") or None,
    )
    expected = (row["status"], row.get("reason", ""), wanted, row.get("location"), row.get("details"))
    return None if found == expected else found
