"""Certificates signed through the HTTP API, in requests a second and CPU each, against the same calls by a bare client.

Requests are there when a bare client approves them at full speed, which counts; the controller hears of it, signs, and
writes. The ceiling is the same, one after the other: approvals, signatures, and the writes of certificates. For the CPU
it is to read a request and to sign it, and nothing else.
"""

import base64
import json
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.harness import TOKEN, Result
from benchmarks.load import request
from benchmarks.processes import Api, api_at, create, delete, manager_of
from controller_manager.common.api.certificates import NODE_CLIENT
from controller_manager.common.base.clock import utc_now
from controller_manager.testing.certificates import CLIENT_USAGES, authority, request_pem, write_authority
from controllers.certificate_signing.authority import read_authority
from controllers.certificate_signing.validity import validity
from controllers.shared.certificate_requests import read_request

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
COUNT, WORKERS = 1000, 5
CONTROLLER = "--controllers=certificatesigningrequest-signing-controller"


async def run() -> list[Result]:
    """1,000 requests for client certificates of nodes, signed by an elliptic key and by a large RSA one."""
    return [*await signed("p-256", 0.3), *await signed("rsa-4096", 0.3)]


async def signed(kind: str, aim: float) -> list[Result]:
    """1,000 requests signed with a key of that kind."""
    pem = base64.b64encode(request_pem()).decode()
    with tempfile.TemporaryDirectory() as name:
        files = write_authority(Path(name), authority(kind))
        async with api_at(Path(name)) as api:
            await api.send(_create(number, pem) for number in range(COUNT))
            async with manager_of(api, CONTROLLER, *files) as manager:
                work = await manager.measure(COUNT, lambda: _approve_and_wait(api, pem))
            made = (await api.read(REQUESTS))["items"]
            await api.send(delete(f"{REQUESTS}/{tree['metadata']['name']}") for tree in made)
            await api.send(_create(number, pem) for number in range(COUNT))
            approved = await api.send(_approve(number, pem) for number in range(COUNT))
            written = await api.send((_put(_anew(tree), "status") for tree in made), connections=WORKERS)
    alone = _signing_alone(kind)
    top = 1 / (1 / approved + alone / 1000 + 1 / written)
    return work.results(f"requests signed, {kind}", top, aim=aim, cpu_ms=alone, of="signing", cpu_aim=5)


def _signing_alone(kind: str) -> float:
    """Milliseconds of CPU."""
    source, pem, now = read_authority(authority(kind)), request_pem(), utc_now()
    began = time.process_time()
    for _ in range(COUNT):
        period = validity(now, None, timedelta(hours=1), source.end)
        assert period is not None
        source.issue(read_request(pem), CLIENT_USAGES, period)
    return time.process_time() - began


async def _approve_and_wait(api: Api, pem: str) -> None:
    await api.send(_approve(number, pem) for number in range(COUNT))

    async def holds() -> bool:
        return all("certificate" in tree["status"] for tree in (await api.read(REQUESTS))["items"])

    await api.until(holds)


def _tree(number: int, pem: str) -> dict[str, Any]:
    spec = {"request": pem, "signerName": NODE_CLIENT, "usages": CLIENT_USAGES}
    return {"metadata": {"name": f"node-{number}"}, "spec": spec}


def _create(number: int, pem: str) -> bytes:
    return create(REQUESTS, _tree(number, pem))


def _approve(number: int, pem: str) -> bytes:
    verdict = {"type": "Approved", "status": "True", "reason": "Benchmark"}
    return _put({**_tree(number, pem), "status": {"conditions": [verdict]}}, "approval")


def _anew(tree: dict[str, Any]) -> dict[str, Any]:
    """A request as it was signed, whichever version is there now."""
    return {**tree, "metadata": {"name": tree["metadata"]["name"]}}


def _put(tree: dict[str, Any], part: str) -> bytes:
    return request("PUT", f"{REQUESTS}/{tree['metadata']['name']}/{part}", TOKEN, json.dumps(tree).encode())
