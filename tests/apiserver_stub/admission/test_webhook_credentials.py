"""Credentials that are sent to admission webhooks."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.admission.webhooks.credentials import WebhookAdmissionConfiguration, check, identity_for
from apiserver_stub.webhooks.client import WebhookClient, WebhookConfig
from apiserver_stub.webhooks.service_resolver import ServiceAddress
from controller_manager.common.transport.config import ClientIdentity, Impersonation
from controller_manager.common.transport.kubeconfig import identities
from tests.apiserver_stub.webhooks.webhook_server import Webhook

ALL = {name: name for name in ("hook.ns.svc:443", "*.ns.svc", "*.svc:8443", "example.com", "*", "current")}


@pytest.mark.parametrize(
    ("target", "users", "current", "found"),
    [
        ("hook.ns.svc:443", ALL, "current", "hook.ns.svc:443"),
        ("other.ns.svc:443", ALL, "current", "*.ns.svc"),
        ("other.ns.svc:8443", ALL, "current", "*.svc:8443"),
        ("example.com:443", ALL, "current", "example.com"),
        ("example.com:8443", ALL, "current", "*"),
        ("example.com:8443", {"current": "current"}, "current", "current"),
        ("example.com:8443", {"other": "other"}, "", None),
    ],
)
def test_credentials_are_selected_by_webhook_name(
    target: str, users: Mapping[str, str], current: str, found: str | None
) -> None:
    assert identity_for(target, users, current) == found


def test_credentials_are_read_from_kubeconfig(tmp_path: Path) -> None:
    users = [{"name": "a", "user": {"token": "t"}}, {"name": "b", "user": {}}]
    tree: dict[str, Any] = {"users": users, "contexts": [{"name": "c", "context": {"cluster": "x", "user": "b"}}]}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps({**tree, "current-context": "c"}))
    found, current = identities(file)
    assert (found["a"].token, current) == ("t", "b")


@pytest.mark.parametrize(
    ("field", "value", "problems"),
    [
        ("kube_config_file", "/a/b", []),
        ("kube_config_file", "a/b", ["kubeConfigFile"]),
        ("static_manifests_dir", "/a", ["staticManifestsDir"]),
    ],
)
def test_webhook_configuration_is_validated(field: str, value: str, problems: list[str]) -> None:
    document = WebhookAdmissionConfiguration(api_version="apiserver.config.k8s.io/v1", **{field: value})
    assert [cause.field for cause in check(document).causes] == problems


class NoServices:
    def resolve(self, namespace: str, name: str, port: int) -> ServiceAddress:
        raise AssertionError("no service is asked")


async def test_token_is_sent_only_to_its_webhook(tmp_path: Path) -> None:
    async with Webhook(tmp_path) as hook:
        asked = []

        def identify(host: str, port: int) -> ClientIdentity | None:
            asked.append((host, port))
            return ClientIdentity(token="secret") if host == "127.0.0.1" else None

        for identity in (identify, None):
            client = WebhookClient(NoServices(), identify=identity)
            await client.post(WebhookConfig.of(hook.config), b"{}", 5)
            await client.close()
        assert [request.headers.get("Authorization") for request, _ in hook.seen] == ["Bearer secret", None]
        assert asked == [("127.0.0.1", hook.port)]


async def test_impersonation_headers_are_sent_to_webhook(tmp_path: Path) -> None:
    async with Webhook(tmp_path) as hook:
        acting = ClientIdentity(token="secret", impersonation=Impersonation("jane", groups=("a,b", "c")))
        client = WebhookClient(NoServices(), identify=lambda host, port: acting)
        await client.post(WebhookConfig.of(hook.config), b"{}", 5)
        await client.close()
        ((request, _),) = hook.seen
        assert request.headers.getall("Impersonate-User") == ["jane"]
        assert request.headers.getall("Impersonate-Group") == ["a,b", "c"]
