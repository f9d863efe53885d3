"""AuthorizationConfiguration: valid files, their combination with flags, and reloading."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.authz.authorization import Authorization, AuthorizationParts
from apiserver_stub.authz.configuration import WebhookConfiguration, from_flags
from apiserver_stub.authz.configured import ConfigurationFile, retire
from apiserver_stub.common.config_file import ConfigFileError, Seconds
from apiserver_stub.common.flags import FLAGS, AuthorizationOptions
from apiserver_stub.storage.embedded import EmbeddedStorage
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.options.parse import FlagError
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import AuthorizerAttributes, Decision
from controller_manager.common.transport.transport import ConfigError
from tests.apiserver_stub.memory_backend import MemoryBackend
from tests.apiserver_stub.webhooks.webhook_server import Tree, Webhook, kubeconfig

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data/configurations.jsonl").read_text().splitlines()]
ALLOW, NONE = Decision.ALLOW, Decision.NO_OPINION
RBAC = {"type": "RBAC", "name": "rbac"}


def options(*argv: str) -> AuthorizationOptions:
    return FLAGS.parse(argv)[AuthorizationOptions]


def document(*authorizers: Tree) -> str:
    return json.dumps(
        {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthorizationConfiguration",
            "authorizers": list(authorizers),
        }
    )


def webhook(file: str, name: str = "hook", **fields: Any) -> Tree:
    return {
        "type": "Webhook",
        "name": name,
        "webhook": {
            "timeout": "3s",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "NoOpinion",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": file},
            **fields,
        },
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_file_is_validated_like_kube_apiserver(row: Any, tmp_path: Path) -> None:
    (tmp_path / "hook.kubeconfig").write_text("{}")
    path = tmp_path / "authorization.yaml"
    path.write_text(json.dumps(row["document"]).replace("FOLDER", str(tmp_path)))
    if row["fields"] == []:
        ConfigurationFile(path)
        return
    with pytest.raises(ConfigFileError, match=r"authorization\.yaml") as refusal:
        ConfigurationFile(path)
    message = str(refusal.value).partition(": ")[2]
    for field in row["fields"] or ():
        assert f"{field}: " in message
    assert row["fields"] is None or message.count("authorizers") >= len(row["fields"])


def test_vendor_neutral_names_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("{}")
    path = tmp_path / "authorization.yaml"
    info = {"type": "ClusterConfigFile", "clusterConfigFile": str(tmp_path / "k")}
    path.write_text(document(webhook("", connectionInfo=info)).replace("config.k8s.io/v1", "k8s.io/v1beta1"))
    found = ConfigurationFile(path).configuration.authorizers[0].webhook
    assert found is not None
    assert found.connection_info.file == str(tmp_path / "k")


@pytest.mark.parametrize(
    ("fields", "remembered"),
    [
        ({}, (300.0, 30.0)),
        ({"authorized_ttl": Seconds(7), "unauthorized_ttl": Seconds(8)}, (7.0, 8.0)),
        ({"cache_authorized_requests": False}, (0.0, 30.0)),
        ({"cache_unauthorized_requests": False, "unauthorized_ttl": Seconds(8)}, (300.0, 0.0)),
    ],
)
def test_cache_durations(fields: Any, remembered: tuple[float, float]) -> None:
    assert WebhookConfiguration(**fields).remembered == remembered


def test_flags_translate_to_configuration() -> None:
    assert [(each.type, each.name) for each in from_flags(options()).authorizers] == [("AlwaysAllow", "alwaysallow")]
    found = from_flags(
        options(
            "--authorization-mode=Node,Webhook,RBAC",
            "--authorization-webhook-config-file=/etc/hook",
            "--authorization-webhook-version=v1",
            "--authorization-webhook-cache-authorized-ttl=10s",
            "--authorization-webhook-cache-unauthorized-ttl=0",
        )
    )
    assert [(each.type, each.name) for each in found.authorizers] == [
        ("Node", "node"),
        ("Webhook", "default"),
        ("RBAC", "rbac"),
    ]
    asked = found.authorizers[1].webhook
    assert asked is not None
    assert (asked.subject_access_review_version, asked.failure_policy, asked.timeout) == ("v1", "NoOpinion", 30)
    assert (asked.remembered, asked.connection_info.file) == ((10.0, 0.0), "/etc/hook")


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--authorization-mode=ABAC"], "needs --authorization-policy-file"),
        (["--authorization-mode=Webhook"], "needs --authorization-webhook-config-file"),
        (["--authorization-policy-file=/x"], "needs --authorization-mode ABAC"),
        (["--authorization-webhook-config-file=/x"], "needs --authorization-mode Webhook"),
        (["--authorization-mode=RBAC", "--authorization-config=/x"], "stands for --authorization-mode"),
        (["--authorization-webhook-version=v1", "--authorization-config=/x"], "stands for --authorization-webhook"),
        (["--authorization-webhook-version=v2"], "authorization-webhook-version"),
    ],
)
def test_conflicting_flags_are_rejected(argv: list[str], problem: str) -> None:
    with pytest.raises(FlagError, match=problem):
        options(*argv)


@pytest.fixture
async def store() -> AsyncIterator[WatchCache]:
    found = WatchCache(EmbeddedStorage(MemoryBackend()))
    await found.start()
    yield found
    await found.close()


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with Webhook(tmp_path, lambda review: {**review, "status": {"allowed": True}}) as found:
        yield found


class Followed:
    """Authorization by a file that a test changes."""

    def __init__(self, path: Path, store: WatchCache, *argv: str) -> None:
        self.path = path
        self.runtime = Runtime("test")
        self.authorization = Authorization(
            options(f"--authorization-config={path}", *argv), AuthorizationParts(store, self.runtime)
        )
        self.authorization.read()

    async def decision(self, user: str = "joe", groups: tuple[str, ...] = ()) -> Decision:
        asked = AuthorizerAttributes(User(user, groups=groups), "get", "", "", "v1", "pods", "", "ns", "p")
        return (await self.authorization.authorizer.authorize(asked)).decision

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        return {
            tuple(value for label, value in sample.labels.items() if not label.endswith("hash")): sample.value
            for family in self.runtime.registry.collect()
            for sample in family.samples
            if sample.name == f"apiserver_authorization_{name}"
        }


@pytest.mark.virtual
async def test_changed_file_takes_effect(store: WatchCache, tmp_path: Path) -> None:
    path, file = tmp_path / "authorization.yaml", kubeconfig(Webhook(tmp_path))
    never = webhook(file, matchConditions=[{"expression": "request.user == 'nobody'"}])
    always, deny = {"type": "AlwaysAllow", "name": "alwaysallow"}, {"type": "AlwaysDeny", "name": "alwaysdeny"}
    path.write_text(document(never, deny, RBAC))
    followed = Followed(path, store)

    async def change(text: str) -> Decision:
        path.write_text(text)
        await asyncio.sleep(2)
        return await followed.decision()

    async with Tasks() as tasks:
        tasks.start(followed.authorization.run(), name="follow")
        assert await followed.decision() is NONE
        assert await change(document(never, always, deny, RBAC)) is ALLOW
        for broken in (
            "{",
            document(),
            document(never, deny),  # RBAC was configured at the start
            document(webhook(file, matchConditions=[{"expression": "request."}]), deny, RBAC),
            document({"type": "Node", "name": "node"}, deny, RBAC),  # Node was not
            document(webhook(str(path)), deny, RBAC),  # that is not a kubeconfig
        ):
            assert await change(broken) is ALLOW
        path.unlink()
        await asyncio.sleep(5)
        assert await change(document(never, deny, RBAC)) is NONE
    await followed.authorization.close()
    assert followed.counted("config_controller_automatic_reloads_total") == {("success",): 2, ("failure",): 7}
    assert followed.counted("decisions_total") == {("AlwaysAllow", "alwaysallow", "allowed"): 7}


async def test_removed_webhooks_are_closed(hook: Webhook, store: WatchCache, tmp_path: Path) -> None:
    path, file = tmp_path / "authorization.yaml", kubeconfig(hook)
    path.write_text(document(webhook(file)))
    followed = Followed(path, store)
    release = asyncio.Event()

    async def answer(review: Tree) -> Tree:
        await release.wait()
        return {**review, "status": {"allowed": True}}

    hook.answer = answer
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(followed.decision())
        await asyncio.sleep(0.05)
        path.write_text(document(webhook(file, "other")))
        await retire(followed.authorization.authorizer.use(ConfigurationFile(path).configuration))
        release.set()
    assert asked.result() is ALLOW, "who was asked before the change is answered"
    assert await followed.decision() is ALLOW
    assert followed.counted("decisions_total") == {
        ("Webhook", "hook", "allowed"): 1,
        ("Webhook", "other", "allowed"): 1,
    }
    await followed.authorization.close()


async def test_administrators_bypass_webhooks(hook: Webhook, store: WatchCache, tmp_path: Path) -> None:
    path = tmp_path / "authorization.yaml"
    path.write_text(document(webhook(kubeconfig(hook))))
    followed = Followed(path, store)
    assert await followed.decision("root", ("system:masters",)) is ALLOW
    assert hook.seen == []
    assert followed.counted("decisions_total") == {}
    rules = await followed.authorization.authorizer.rules_for(User("root", groups=("system:masters",)), "ns")
    assert (rules.resource_rules, rules.incomplete) == ((), True)
    await followed.authorization.close()


async def test_authorizers_are_called_in_order(hook: Webhook, store: WatchCache, tmp_path: Path) -> None:
    policy, path = tmp_path / "policy", tmp_path / "authorization.yaml"
    policy.write_text('{"user":"joe"}')
    path.write_text(document({"type": "ABAC", "name": "abac"}, webhook(kubeconfig(hook)), RBAC))
    followed = Followed(path, store, f"--authorization-policy-file={policy}")
    assert (await followed.decision(), hook.take()) == (ALLOW, [])
    assert await followed.decision("ann") is ALLOW
    assert len(hook.take()) == 1
    await followed.authorization.close()


def test_unusable_files_are_reported(tmp_path: Path) -> None:
    store, runtime = WatchCache(EmbeddedStorage(MemoryBackend())), Runtime("test")
    (tmp_path / "hook").write_text("{}")
    (tmp_path / "policy").write_text("{")
    (tmp_path / "config").write_text(document(webhook(str(tmp_path / "hook"))))
    (tmp_path / "abac").write_text(document({"type": "ABAC", "name": "abac"}))
    for argv, problem, error in (
        ([f"--authorization-config={tmp_path}/none"], "--authorization-config: .*none", ConfigFileError),
        ([f"--authorization-config={tmp_path}/config"], r"--authorization-config: authorizers\[0\]\.conn", ConfigError),
        ([f"--authorization-config={tmp_path}/abac"], "--authorization-policy-file", ValueError),
        (
            ["--authorization-mode=ABAC", f"--authorization-policy-file={tmp_path}/policy"],
            "--authorization-policy-file: .*policy: line 1",
            ValueError,
        ),
        (
            ["--authorization-mode=Webhook", f"--authorization-webhook-config-file={tmp_path}/hook"],
            "--authorization-webhook-config-file: .*hook",
            ConfigError,
        ),
    ):
        with pytest.raises(error, match=problem):
            Authorization(options(*argv), AuthorizationParts(store, runtime))
