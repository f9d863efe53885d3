"""Authentication of a whole server by its flags: bootstrap tokens, secret tokens and a token webhook."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from controller_manager.common.api.wire import Certificate, Request
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.transport.transport import ConfigError
from tests.apiserver_stub.webhooks.webhook_server import Webhook, kubeconfig

WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SECRETS = "/api/v1/namespaces/{}/secrets"


async def authenticated_user(api: Any, token: str) -> Any:
    """The user of a token, or the status code of a rejection."""
    headers = {"authorization": f"Bearer {token}"}
    answer = await api.server.handle(Request("POST", WHO_AM_I, (), headers, b"{}"))
    return json.loads(answer.body)["status"]["userInfo"] if answer.status == 201 else answer.status


def encoded(**data: str) -> dict[str, str]:
    return {name.replace("_", "-"): base64.b64encode(value.encode()).decode() for name, value in data.items()}


BOOTSTRAP = {
    "metadata": {"name": "bootstrap-token-abcdef"},
    "type": "bootstrap.kubernetes.io/token",
    "data": encoded(
        token_id="abcdef", token_secret="0123456789abcdef", usage_bootstrap_authentication="true",
        auth_extra_groups="system:bootstrappers:workers",
    ),
}  # fmt: skip


async def test_bootstrap_tokens_authenticate_if_enabled(started: Any) -> None:
    async with started("--enable-bootstrap-token-auth") as api:
        code = (await api.post(SECRETS.format("kube-system"), BOOTSTRAP)).status
        assert code == 201
        assert await authenticated_user(api, "abcdef.0123456789abcdef") == {
            "username": "system:bootstrap:abcdef",
            "groups": ["system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"],
        }
        await api.delete(f"{SECRETS.format('kube-system')}/bootstrap-token-abcdef")
        assert await authenticated_user(api, "abcdef.0123456789abcdef") == 401


async def test_bootstrap_tokens_are_off_by_default(started: Any) -> None:
    async with started() as api:
        await api.post(SECRETS.format("kube-system"), BOOTSTRAP)
        assert await authenticated_user(api, "abcdef.0123456789abcdef") == 401
    async with started("--enable-bootstrap-token-auth") as api:
        await api.post(SECRETS.format("default"), BOOTSTRAP)
        await api.delete(f"{SECRETS.format('kube-system')}/bootstrap-token-abcdef")
        assert await authenticated_user(api, "abcdef.0123456789abcdef") == 401


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Webhook]:
    def answer(review: Any) -> Any:
        token = review["spec"]["token"]
        return {**review, "status": {"authenticated": token == "theirs", "user": {"username": "jane", "groups": ["g"]}}}

    async with Webhook(tmp_path, answer) as found:
        yield found


async def test_unknown_tokens_are_sent_to_webhook(started: Any, hook: Webhook) -> None:
    named = f"--authentication-token-webhook-config-file={kubeconfig(hook)}"
    async with started(named, "--authentication-token-webhook-version=v1") as api:
        jane = {"username": "jane", "groups": ["g", "system:authenticated"]}
        for _ in range(3):
            assert await authenticated_user(api, "theirs") == jane
            assert await authenticated_user(api, "nobodys") == 401
        assert [review["spec"]["token"] for review in hook.take()] == ["theirs", "nobodys"]
        review = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "theirs"}})
        assert (review.status, review.tree["status"]["authenticated"], review.tree["status"]["user"]) == (
            201,
            True,
            jane,
        )


async def test_webhook_cache_ttl_follows_the_flag(started: Any, hook: Webhook) -> None:
    named = f"--authentication-token-webhook-config-file={kubeconfig(hook)}"
    async with started(named, "--authentication-token-webhook-cache-ttl=0s") as api:
        for _ in range(2):
            assert await authenticated_user(api, "nobodys") == 401
        assert len(hook.take()) == 2


async def test_missing_file_is_reported(started: Any, tmp_path: Path) -> None:
    file = tmp_path / "absent"
    with pytest.raises(ConfigError, match=f"--authentication-token-webhook-config-file: .*{file}"):
        async with started(f"--authentication-token-webhook-config-file={file}"):
            pass


ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
OF_DEFAULT = SECRETS.format("default")


class SecretTokenServer:
    """A server with a known key, and an account with a token in a secret."""

    def __init__(self, folder: Path) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / "sa.key").write_bytes(self.key.private_bytes(*form))
        self.flag = f"--service-account-signing-key-file={folder / 'sa.key'}"

    def token(self, uid: str, **changed: str) -> str:
        prefix = "kubernetes.io/serviceaccount"
        claims = {
            "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:robot",
            f"{prefix}/namespace": "default", f"{prefix}/secret.name": "robot-token",
            f"{prefix}/service-account.name": "robot", f"{prefix}/service-account.uid": uid,
        }  # fmt: skip
        return jwt.encode({**claims, **changed}, self.key, "ES256", {})

    async def prepare(self, api: Any) -> str:
        account = (await api.post(ACCOUNTS, {"metadata": {"name": "robot"}})).tree
        token = self.token(account["metadata"]["uid"])
        annotations = {"kubernetes.io/service-account.name": "robot"}
        secret = {
            "metadata": {"name": "robot-token", "annotations": annotations},
            "type": "kubernetes.io/service-account-token",
            "data": encoded(token=token),
        }
        answer = await api.post(OF_DEFAULT, secret)
        assert answer.status == 201, answer.tree
        return token


@pytest.fixture
def signed(tmp_path: Path) -> SecretTokenServer:
    return SecretTokenServer(tmp_path)


async def test_secret_token_is_valid_while_its_secret_exists(started: Any, signed: SecretTokenServer) -> None:
    async with started(signed.flag) as api:
        token = await signed.prepare(api)
        found = await authenticated_user(api, token)
        assert found["username"] == "system:serviceaccount:default:robot"
        assert found["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
        secret = (await api.get(f"{OF_DEFAULT}/robot-token")).tree
        day = secret["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"]
        assert len(day) == 10
        revision = secret["metadata"]["resourceVersion"]
        await authenticated_user(api, token)
        secret = (await api.get(f"{OF_DEFAULT}/robot-token")).tree
        assert secret["metadata"]["resourceVersion"] == revision, "the day is noted once"
        secret["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"] = "2026-01-01"
        await api.put(f"{OF_DEFAULT}/robot-token", secret)
        assert await authenticated_user(api, token) == 401
        del (
            secret["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"],
            secret["metadata"]["resourceVersion"],
        )
        await api.put(f"{OF_DEFAULT}/robot-token", secret)
        assert (await authenticated_user(api, token))["username"] == "system:serviceaccount:default:robot"
        await api.delete(f"{OF_DEFAULT}/robot-token")
        assert await authenticated_user(api, token) == 401


@pytest.mark.one_process("it counts those whom a process lets wait")
async def test_hanging_webhook_delays_no_other_caller(started: Any, hook: Webhook, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("good,joe,1\n")
    release = asyncio.Event()

    async def hang(review: Any) -> Any:
        await release.wait()
        return {**review, "status": {"authenticated": True, "user": {"username": "late"}}}

    hook.answer = hang
    flags = f"--token-auth-file={tmp_path / 'tokens'}", f"--authentication-token-webhook-config-file={kubeconfig(hook)}"
    async with started(*flags) as api:
        async with Tasks() as tasks:
            waiting = [
                tasks.start(authenticated_user(api, f"unknown-{number}"), name="a stranger") for number in range(400)
            ]
            async with asyncio.timeout(5):
                for _ in range(20):
                    assert (await authenticated_user(api, "good"))["username"] == "joe"
                    assert (await api.get("/api/v1/namespaces")).status == 200
            assert not all(task.done() for task in waiting), "those are waited for who can be"
            release.set()
            found = [await task for task in waiting]
        assert {one if isinstance(one, int) else one["username"] for one in found} == {401, "late"}


async def test_authentications_are_counted(started: Any) -> None:
    async with started() as api:
        await authenticated_user(api, "forged")
        for certificate in (Certificate("admin", ("system:masters",)), Certificate("a@b.c", expires=4_000_000_000.0)):
            await api.server.handle(Request("GET", "/api/v1/namespaces", certificate=certificate))
        await api.server.handle(Request("GET", "/version"))
        answer = await api.send("GET", "/metrics")
        lines = answer.body.decode().splitlines()
        assert 'authentication_attempts{result="error"} 1' in lines
        assert 'authenticated_user_requests{username="email_id"} 1' in lines
        assert any(line.startswith('authentication_duration_seconds_count{result="success"}') for line in lines)
        assert "apiserver_client_certificate_expiration_seconds_count 1" in lines


async def test_audit_names_credential_and_impersonator(started: Any, signed: SecretTokenServer, tmp_path: Path) -> None:
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
    (tmp_path / "policy").write_text(json.dumps(policy))
    flags = f"--audit-policy-file={tmp_path / 'policy'}", f"--audit-log-path={tmp_path / 'log'}"
    async with started(signed.flag, *flags, "--audit-log-mode=blocking", "--authorization-mode=RBAC") as api:
        await authenticated_user(api, await signed.prepare(api))
        verbs = ["impersonate:user-info", "impersonate-on:user-info:get"]
        rules = [{"apiGroups": ["*"], "resources": ["users", "namespaces"], "verbs": verbs}]
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        await api.post(f"{rbac}/clusterroles", {"metadata": {"name": "deputy"}, "rules": rules})
        bound = {"kind": "User", "name": "deputy", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "deputy", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "deputy"}, "subjects": [bound], "roleRef": role}
        await api.post(f"{rbac}/clusterrolebindings", binding)
        headers = {"impersonate-user": "jane"}
        deputy = Certificate("deputy")
        await api.server.handle(Request("GET", "/api/v1/namespaces/default", (), headers, b"", deputy))
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    review = next(event for event in events if event["requestURI"].startswith(WHO_AM_I))
    assert review["annotations"]["authentication.k8s.io/legacy-token"] == "system:serviceaccount:default:robot"
    assert review["annotations"]["authentication.k8s.io/legacy-token-manual-secret"] == "robot-token"
    acting = [event for event in events if event.get("impersonatedUser", {}).get("username") == "jane"]
    assert {event["user"]["username"] for event in acting} == {"deputy"}
    assert acting[-1]["impersonatedUser"]["groups"] == ["system:authenticated"]
    assert acting[-1]["authenticationMetadata"] == {"impersonationConstraint": "impersonate:user-info"}
