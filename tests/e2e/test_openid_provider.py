"""Logins at a real OpenID provider: key rotation, outages and forged tokens."""

import base64
import hashlib
import hmac
import http.client
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest

from tests.apiserver_stub.webhooks.webhook_server import self_signed
from tests.e2e.conftest import ApiProcess, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.needs("openid provider")]
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
LOGIN = {"client_id": "cluster", "redirect_uri": "https://app/", "response_type": "code", "scope": "openid email"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


class Provider:
    """The provider and its logins."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        certificate, key = self_signed("127.0.0.1", "localhost")
        self.ca = certificate.decode()
        self._file = folder / "provider.pem"
        self._file.write_bytes(certificate + key)

    def start(self) -> None:
        command = (sys.executable, str(Path(__file__).with_name("openid_provider.py")), str(self.port), str(self._file))
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def login(self, user: str, host: str = "127.0.0.1", client: str = "cluster", **claims: Any) -> str:
        """The id token of a user, by the authorization code flow."""
        text = json.dumps(claims)
        self.ask("PUT", f"/users/{quote(user)}", text, {"content-type": "application/json"}, host)
        login = {**LOGIN, "client_id": client}
        _, headers = self.ask("POST", f"/oauth2/authorize?{urlencode(login)}", urlencode({"sub": user}), FORM, host)
        code = parse_qs(urlsplit(headers["Location"]).query)["code"][0]
        form = {**login, "grant_type": "authorization_code", "code": code, "client_secret": "any"}
        body, _ = self.ask("POST", "/oauth2/token", urlencode(form), FORM, host)
        return str(json.loads(body)["id_token"])

    def ask(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None, host: str = ""
    ) -> tuple[bytes, Any]:
        context = ssl.create_default_context(cadata=self.ca)
        connection = http.client.HTTPSConnection(host or "127.0.0.1", self.port, timeout=20, context=context)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = answer.read(), answer.headers
        assert answer.status < 400, found
        return found


class Cluster:
    """The server, and its authentication file."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.file = folder / "authentication.json"
        self.provider = provider
        self.configure("oidc:")
        self.process = ApiProcess(folder / "data", f"--authentication-config={self.file}")

    def configure(self, prefix: str) -> None:
        mappings = {
            "username": {"claim": "email", "prefix": prefix},
            "groups": {"expression": "claims.?roles.orValue([])"},
            "extra": [{"key": "example.org/department", "valueExpression": "claims.?department.orValue('')"}],
        }
        authenticator = {
            "issuer": {"url": self.provider.url, "certificateAuthority": self.provider.ca, "audiences": ["cluster"]},
            "claimMappings": mappings,
            "claimValidationRules": [{"expression": "claims.?blocked.orValue(false) == false", "message": "blocked"}],
        }
        document = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
        self.file.write_text(json.dumps({**document, "jwt": [authenticator]}))

    def user(self, token: str) -> dict[str, Any]:
        """The user of a token; empty if it is rejected."""
        context = ssl.create_default_context(cafile=str(self.process.folder / "ca.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.process.port, timeout=30, context=context)
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        connection.request("POST", REVIEW, "{}", headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status in (201, 401), found
        user: dict[str, Any] = found["status"]["userInfo"] if answer.status == 201 else {}
        return user

    def becomes(self, token: str, name: str) -> bool:
        """Whether a token authenticates this user within twenty seconds; an empty name means rejection."""
        for _ in range(100):
            if self.user(token).get("username", "") == name:
                return True
            time.sleep(0.2)
        return False


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    found = Provider(tmp_path_factory.mktemp("provider"))
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def cluster(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("server"), provider)
    yield found
    found.process.stop()


def test_login_maps_claims_to_user(provider: Provider, cluster: Cluster) -> None:
    token = provider.login("jane", email="jane@example.org", roles=["dev", "ops"], department="sales")
    assert cluster.user(token) == {
        "username": "oidc:jane@example.org",
        "groups": ["dev", "ops", "system:authenticated"],
        "extra": {"example.org/department": ["sales"]},
    }
    assert cluster.user(provider.login("joe", email="joe@example.org", blocked=True)) == {}
    assert cluster.user(provider.login("jim", email="jim@example.org", email_verified=False)) == {}


def test_tokens_of_other_clients_and_issuers_are_rejected(provider: Provider, cluster: Cluster) -> None:
    assert cluster.user(provider.login("jane", email="jane@example.org", client="another")) == {}
    assert cluster.user(provider.login("jane", host="localhost", email="jane@example.org")) == {}


def test_forged_tokens_are_rejected(provider: Provider, cluster: Cluster) -> None:
    token = provider.login("jane", email="jane@example.org")
    header, payload, signature = token.split(".")
    assert cluster.user(token)
    (key,) = json.loads(provider.ask("GET", "/jwks")[0])["keys"]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    root = b64(json.dumps({**claims, "email": "root@example.org"}))
    keyed = f"{b64(json.dumps({'alg': 'HS256', 'kid': key['kid']}))}.{root}"
    modulus = base64.urlsafe_b64decode(key["n"] + "==")
    for forged in (
        f"{b64(json.dumps({'alg': 'none'}))}.{root}.",
        f"{header}.{root}.{signature}",
        f"{keyed}.{b64(hmac.new(modulus, keyed.encode(), hashlib.sha256).digest())}",
        f"{header}.{payload}.{signature[:-2]}",
        f"{header}.{payload}.",
    ):
        assert cluster.user(forged) == {}


def test_changed_file_takes_effect(provider: Provider, cluster: Cluster) -> None:
    cluster.file.write_text("{")
    time.sleep(2)
    assert cluster.user(provider.login("jane", email="jane@example.org"))["username"] == "oidc:jane@example.org"
    cluster.configure("other:")
    time.sleep(2)
    assert cluster.user(provider.login("jane", email="jane@example.org"))["username"] == "other:jane@example.org"
    cluster.configure("oidc:")
    time.sleep(2)
    assert cluster.user(provider.login("jane", email="jane@example.org"))["username"] == "oidc:jane@example.org"


def test_new_key_is_found_and_old_key_rejected(provider: Provider, cluster: Cluster) -> None:
    before = provider.login("jane", email="jane@example.org")
    provider.stop()
    assert cluster.user(before), "keys that are known outlive an outage"
    provider.start()
    assert cluster.becomes(provider.login("joe", email="joe@example.org"), "oidc:joe@example.org")
    assert cluster.becomes(before, "")


def test_server_starts_without_provider_and_finds_it_later(provider: Provider, cluster: Cluster) -> None:
    token = provider.login("jane", email="jane@example.org")
    cluster.process.stop()
    provider.stop()
    cluster.process.start()
    assert cluster.user(token) == {}
    provider.start()
    assert cluster.becomes(provider.login("joe", email="joe@example.org"), "oidc:joe@example.org")


def b64(data: str | bytes) -> str:
    data = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
