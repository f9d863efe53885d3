"""Service account tokens with real processes: kubectl creates and uses them, controllers use theirs."""

import base64
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from kubernetes import client as official
from kubernetes import config

pytestmark = pytest.mark.e2e

Kubectl = Callable[..., str]
ISSUER = "https://kubernetes.default.svc.cluster.local"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
}


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


@pytest.fixture
def robot(kubectl: Kubectl, namespace: str) -> str:
    """A namespace with the service account `robot`."""
    kubectl("create", "serviceaccount", "robot", "-n", namespace)
    return namespace


@pytest.fixture
def as_holder(server: Any) -> tuple[str, ...]:
    """kubectl arguments with the server's address and without a certificate."""
    authority = f"--certificate-authority={server.folder / 'ca.crt'}"
    return ("--kubeconfig=/dev/null", f"--server={server.url}", authority)


def test_kubectl_creates_and_uses_a_token(kubectl: Kubectl, robot: str, as_holder: tuple[str, ...]) -> None:
    token = kubectl("create", "token", "robot", "-n", robot, "--duration=20m")
    claims = claims_of(token)
    assert (claims["iss"], claims["aud"], claims["exp"] - claims["iat"]) == (ISSUER, [ISSUER], 1200)
    user = json.loads(kubectl(*as_holder, f"--token={token}", "auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{robot}:robot"
    assert f"system:serviceaccounts:{robot}" in user["groups"]
    assert kubectl(*as_holder, f"--token={token}", "get", "serviceaccounts", "-n", robot, "-o", "name")


def test_token_is_invalid_after_account_is_deleted(
    kubectl: Kubectl, kubectl_error: Kubectl, robot: str, as_holder: tuple[str, ...]
) -> None:
    shown = f"--token={kubectl('create', 'token', 'robot', '-n', robot)}"
    assert kubectl(*as_holder, shown, "auth", "whoami")
    kubectl("delete", "serviceaccount", "robot", "-n", robot)
    assert "Unauthorized" in kubectl_error(*as_holder, shown, "auth", "whoami")


@pytest.mark.parametrize("kind", ["Pod", "Secret"])
def test_kubectl_creates_a_bound_token(
    kubectl: Kubectl, kubectl_error: Kubectl, robot: str, as_holder: tuple[str, ...], kind: str
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "p"}}
    kubectl("create", "-n", robot, "-f", "-", "--validate=false", stdin=POD if kind == "Pod" else secret)
    bound = (f"--bound-object-kind={kind}", "--bound-object-name=p")
    shown = f"--token={kubectl('create', 'token', 'robot', '-n', robot, *bound)}"
    assert kubectl(*as_holder, shown, "auth", "whoami")
    other = kubectl_error("create", "token", "robot", "-n", robot, *bound, "--bound-object-uid=other")
    assert "the UID in the bound object reference (other)" in other
    kubectl("delete", kind.lower(), "p", "-n", robot, "--now")
    assert "Unauthorized" in kubectl_error(*as_holder, shown, "auth", "whoami")


def test_kubectl_reports_token_errors(kubectl_error: Kubectl, robot: str) -> None:
    assert "spec.expirationSeconds" in kubectl_error("create", "token", "robot", "-n", robot, "--duration=1m")
    assert 'serviceaccounts "nobody" not found' in kubectl_error("create", "token", "nobody", "-n", robot)


def test_official_client_requests_and_reviews_tokens(server: Any, robot: str) -> None:
    api = config.new_client_from_config(str(server.kubeconfig))
    spec = official.V1TokenRequestSpec(audiences=["vault"], expiration_seconds=700)
    asked = official.AuthenticationV1TokenRequest(spec=spec)
    answer = official.CoreV1Api(api).create_namespaced_service_account_token("robot", robot, asked)
    assert answer.status.expiration_timestamp.timestamp() == claims_of(answer.status.token)["exp"]
    for audience, good in (("vault", True), ("elsewhere", None)):
        review = official.V1TokenReview(
            spec=official.V1TokenReviewSpec(token=answer.status.token, audiences=[audience])
        )
        status = official.AuthenticationV1Api(api).create_token_review(review).status
        assert status.authenticated is good
        assert status.audiences == ([audience] if good else None)


def test_token_is_verified_with_published_keys(kubectl: Kubectl, robot: str) -> None:
    found = json.loads(kubectl("get", "--raw", "/.well-known/openid-configuration"))
    keys = jwt.PyJWKSet.from_dict(json.loads(kubectl("get", "--raw", "/openid/v1/jwks")))
    token = kubectl("create", "token", "robot", "-n", robot, "--audience=vault")
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims = jwt.decode(token, key, found["id_token_signing_alg_values_supported"], audience="vault", issuer=ISSUER)
    assert claims["sub"] == f"system:serviceaccount:{robot}:robot"


def test_tokens_survive_restart(own_server: Any, tmp_path: Path) -> None:
    def holder(token: str) -> Any:
        found = official.Configuration(host=own_server.url)
        found.ssl_ca_cert = str(own_server.folder / "ca.crt")
        found.api_key["authorization"] = f"Bearer {token}"
        return official.CoreV1Api(official.ApiClient(found))

    admin = official.CoreV1Api(config.new_client_from_config(str(own_server.kubeconfig)))
    admin.create_namespaced_service_account("default", {"metadata": {"name": "robot"}})
    token = admin.create_namespaced_service_account_token("robot", "default", {}).status.token
    assert holder(token).list_namespace().items
    own_server.stop()
    own_server.start()
    assert holder(token).list_namespace().items
    assert (own_server.folder / "sa.key").stat().st_mode & 0o777 == 0o600


# --- controllers ---


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.needs("kubectl")
def test_controllers_use_their_own_accounts(cluster: Any) -> None:
    api = official.CoreV1Api(config.new_client_from_config(str(cluster.folder / "admin.kubeconfig")))
    api.create_namespace({"metadata": {"name": "acted-on"}})
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    api.create_namespaced_service("acted-on", service)
    wait_until(lambda: any(one.metadata.name == "web" for one in api.list_namespaced_endpoints("acted-on").items))
    api.delete_namespace("acted-on")
    wait_until(lambda: "acted-on" not in [one.metadata.name for one in api.list_namespace().items])
    accounts = {one.metadata.name for one in api.list_namespaced_service_account("kube-system").items}
    assert accounts >= {"endpoint-controller", "namespace-controller"}
    log = "".join(file.read_text() for file in cluster.folder.glob("manager-*.log"))
    assert "created a service account" in log
    assert not re.search(r"eyJ[\w-]{20}", log), "a token is in the log"
