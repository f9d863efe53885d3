"""A whole server with audit logging: flags, rejected requests, and webhooks that hang, answer wrongly or are down."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import force_setattr

from apiserver_stub.common.flags import FLAGS
from apiserver_stub.process.build import build
from apiserver_stub.process.lifecycle import ApiServer
from apiserver_stub.process.storage_factory import embedded_storage
from apiserver_stub.request.audit import annotate, current_record, note_latency
from controller_manager.common.api.wire import Certificate, Request, Response
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.parse import FlagError
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.webhooks.webhook_server import Webhook, kubeconfig

ADMIN = Certificate("admin", ("system:masters",))
CONFIGS = "/api/v1/namespaces/default/configmaps"


def server(folder: Path, *flags: str, rules: str = "[{level: Metadata}]") -> ApiServer:
    policy = folder / "policy.yaml"
    policy.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}\n")
    options = FLAGS.parse(["--storage-backend=memory", f"--audit-policy-file={policy}", *flags])
    return build(options, Runtime("apiserver"), embedded_storage(MemoryBackend()))


async def ask(api: ApiServer, method: str, path: str, body: Any = None, name: str = "", **headers: str) -> Response:
    data = b"" if body is None else json.dumps(body).encode()
    return await api.handle(Request(method, path, (), {"audit-id": name, **headers}, data, ADMIN, target=path))


def config(name: str, size: int = 1) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "x" * size}}


def events(path: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [event for event in found if event["auditID"] == name]


async def test_strict_mode_rejects_requests_that_cannot_be_logged(tmp_path: Path) -> None:
    rules = (
        "[{level: None, userGroups: [system:masters], users: ['system:apiserver']}, {level: Metadata, verbs: [create]}]"
    )
    api = server(tmp_path, "--audit-log-path=/dev/full", "--audit-log-mode=blocking-strict", rules=rules)
    await api.start()
    assert (await ask(api, "POST", CONFIGS, config("a"))).status == 500
    assert (await ask(api, "GET", f"{CONFIGS}/a")).status == 404
    await api.stop()


async def test_full_disk_blocks_no_requests_in_other_modes(tmp_path: Path) -> None:
    for mode in ("blocking", "batch"):
        api = server(tmp_path, "--audit-log-path=/dev/full", f"--audit-log-mode={mode}")
        await api.start()
        assert (await ask(api, "POST", CONFIGS, config("a"))).status == 201
        await api.stop()


async def test_annotations_of_every_stage_are_in_the_event(tmp_path: Path) -> None:
    """This includes the thread for large objects; the event of the next request has none of it."""
    log = tmp_path / "audit.log"
    api = server(tmp_path, f"--audit-log-path={log}", rules="[{level: Request}]")
    await api.start()
    verbs = api.server._handlers.resource

    async def resource(request: Any) -> Any:
        assert current_record() is not None
        annotate("example.org/seen", request.verb)
        note_latency("etcd", 1.0)
        return await verbs(request)

    force_setattr(api.server._handlers, "resource", resource)
    await ask(api, "POST", CONFIGS, config("large", 200_000), "large")
    await ask(api, "GET", "/version", name="next")
    assert current_record() is None
    await api.stop()
    large, following = events(log, "large")[-1], events(log, "next")[-1]
    assert large["annotations"]["example.org/seen"] == "create"
    assert len(large["requestObject"]["data"]["a"]) == 200_000
    assert "example.org/seen" not in following["annotations"]


async def test_admission_annotations_are_in_the_event(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    api = server(tmp_path, f"--audit-log-path={log}")
    await api.start()
    label = "pod-security.kubernetes.io/"
    labels = {f"{label}enforce": "baseline", f"{label}audit": "restricted"}
    await ask(api, "POST", "/api/v1/namespaces", {"metadata": {"name": "n", "labels": labels}})
    for name, shares in (("plain", False), ("shares", True)):
        pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], "hostPID": shares}}
        answer = await ask(api, "POST", "/api/v1/namespaces/n/pods", pod, name)
        assert answer.status == (403 if shares else 201)
    await api.stop()
    for name in ("plain", "shares"):
        annotations = events(log, name)[-1]["annotations"]
        assert annotations[f"{label}enforce-policy"] == "baseline:latest"
        assert annotations[f"{label}audit-violations"].startswith('would violate PodSecurity "restricted:latest": ')


async def test_secrets_are_logged_as_policy_requires(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    rules = "[{level: Metadata, resources: [{resources: [secrets]}]}, {level: RequestResponse}]"
    api = server(tmp_path, f"--audit-log-path={log}", rules=rules)
    await api.start()
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "stringData": {"p": "hush-hush"}}
    path = "/api/v1/namespaces/default/secrets"
    assert (await ask(api, "POST", path, secret)).status == 201
    assert (await ask(api, "GET", path)).status == 200
    patch = {"stringData": {"p": "hush-hush"}}
    headers = {"content-type": "application/merge-patch+json"}
    assert (await ask(api, "PATCH", f"{path}/s", patch, **headers)).status == 200
    await api.stop()
    text = log.read_text()
    assert "hush" not in text
    assert "aHVzaC1odXNo" not in text
    assert '"name":"s"' in text


async def test_invalid_patch_is_logged(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    api = server(tmp_path, f"--audit-log-path={log}", rules="[{level: Request}]")
    await api.start()
    kind = {"content-type": "application/apply-patch+yaml"}
    for name, data in (
        ("yaml", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
        ("broken", b"{nope\n"),
        ("bytes", b'{"a": "\xff"}'),
    ):
        request = Request("PATCH", f"{CONFIGS}/a", (("fieldManager", "m"),), {"audit-id": name, **kind}, data, ADMIN)
        await api.handle(request)
    await api.stop()
    assert events(log, "yaml")[-1]["requestObject"]["metadata"] == {"name": "a"}
    assert events(log, "broken")[-1]["requestObject"] == "{nope\n"
    assert events(log, "bytes")[-1]["requestObject"] == '{"a": "\ufffd"}'


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path, lambda _: {}) as found:
        yield found


async def test_webhook_receives_events_up_to_shutdown(tmp_path: Path, hook: Webhook) -> None:
    api = server(tmp_path, f"--audit-webhook-config-file={kubeconfig(hook)}", "--audit-webhook-batch-max-wait=50ms")
    await api.start()
    async with Tasks() as tasks:
        tasks.start(api.run(), name="server")
        await ask(api, "GET", "/version", name="first")
        async with asyncio.timeout(10):
            while not any(  # noqa: ASYNC110  # the webhook only notes what it gets
                each["auditID"] == "first" for tree in hook.take() for each in tree["items"]
            ):
                await asyncio.sleep(0.02)
    await ask(api, "GET", "/version", name="last")
    await api.stop()
    sent = hook.take()
    assert {(tree["kind"], tree["apiVersion"]) for tree in sent} == {("EventList", "audit.k8s.io/v1")}
    assert [each["stage"] for tree in sent for each in tree["items"] if each["auditID"] == "last"] == [
        "RequestReceived",
        "ResponseComplete",
    ]


@pytest.mark.parametrize("status", [500, 404, 302])
async def test_failing_webhook_is_retried(tmp_path: Path, hook: Webhook, status: int) -> None:
    answers = [web.Response(status=status, text="lies"), {}]
    hook.answer = lambda _: answers.pop(0) if answers else {}
    flags = ("--audit-webhook-mode=blocking-strict", "--audit-webhook-initial-backoff=10ms")
    api = server(
        tmp_path,
        f"--audit-webhook-config-file={kubeconfig(hook)}",
        *flags,
        rules="[{level: Metadata, verbs: [get], nonResourceURLs: [/version]}]",
    )
    await api.start()
    assert (await ask(api, "GET", "/version")).status == 200
    await api.stop()
    assert len(hook.take()) == 3


async def test_dead_webhook_rejects_requests_in_strict_mode_only(tmp_path: Path, hook: Webhook) -> None:
    file = kubeconfig(hook)
    await hook.__aexit__()
    rules = "[{level: Metadata, nonResourceURLs: [/version]}]"
    for mode, status in (("blocking-strict", 500), ("blocking", 200), ("batch", 200)):
        flags = (f"--audit-webhook-mode={mode}", "--audit-webhook-initial-backoff=1ms")
        api = server(tmp_path, f"--audit-webhook-config-file={file}", *flags, rules=rules)
        await api.start()
        assert (await ask(api, "GET", "/version")).status == status, mode
        await api.stop()


LOG, HOOK = "--audit-log-path=x", "--audit-webhook-config-file=x"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([LOG, "--audit-log-mode=sometimes"], "--audit-log-mode"),
        (["--audit-log-maxage=-1"], "--audit-log-maxage"),
        (["--audit-log-format=xml"], "--audit-log-format"),
        (["--audit-log-version=audit.k8s.io/v1beta1"], "--audit-log-version"),
        ([LOG, "--audit-log-mode=batch", "--audit-log-batch-buffer-size=0"], "--audit-log-batch-buffer-size"),
        ([LOG, "--audit-log-truncate-max-event-size=0"], "--audit-log-truncate-max-event-size"),
        ([HOOK, "--audit-webhook-batch-throttle-qps=0"], "--audit-webhook-batch-throttle-qps"),
        ([HOOK, "--audit-webhook-truncate-max-batch-size=9"], "--audit-webhook-truncate-max-batch-size"),
    ],
)
def test_invalid_flags_are_rejected(flags: list[str], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        FLAGS.parse(flags)


def test_flags_of_unused_backend_are_not_checked() -> None:
    FLAGS.parse(["--audit-log-mode=batch", "--audit-log-batch-buffer-size=0", "--audit-webhook-batch-throttle-burst=0"])
    FLAGS.parse(["--audit-log-path=x", "--audit-log-batch-buffer-size=0"])


def test_deprecated_backoff_flag_is_accepted() -> None:
    from apiserver_stub.common.flags import AuditOptions

    assert FLAGS.parse(["--audit-webhook-batch-initial-backoff=3s"])[AuditOptions].audit_webhook_initial_backoff == 3.0
