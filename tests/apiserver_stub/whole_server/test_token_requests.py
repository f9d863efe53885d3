"""Tokens requested from a whole server, used and reviewed."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest

from apiserver_stub.authn.keys import own_key
from controller_manager.common.api.wire import Request, Response

NS = "/api/v1/namespaces/default"
TOKEN = f"{NS}/serviceaccounts/robot/token"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ISSUER = "https://kubernetes.default.svc.cluster.local"
STORAGES = ("memory", "workers")
POD: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
}


@pytest.fixture
async def api(started) -> AsyncIterator[Any]:
    async with started() as api:
        await prepare(api)
        yield api


async def prepare(api) -> dict[str, Any]:
    account = await api.post(f"{NS}/serviceaccounts", {"metadata": {"name": "robot"}})
    assert account.status == 201
    return account.tree


async def token(api, **spec: Any) -> str:
    answer = await api.post(TOKEN, {"spec": spec})
    assert answer.status == 201, answer.tree
    return answer.tree["status"]["token"]


def claims_of(token: str) -> dict[str, Any]:
    return jwt.decode(token, options={"verify_signature": False})


async def as_holder(api, token: str, path: str = f"{NS}/pods") -> Response:
    """The answer to the holder of a token."""
    method, body = ("POST", b"{}") if path == WHO_AM_I else ("GET", b"")
    return await api.server.handle(Request(method, path, (), {"authorization": f"Bearer {token}"}, body))


async def review(api, token: str, *audiences: str) -> dict[str, Any]:
    answer = await api.post(REVIEWS, {"spec": {"token": token, "audiences": list(audiences)}})
    assert answer.status == 201
    return answer.tree["status"]


@pytest.mark.virtual
async def test_response_describes_the_granted_token(api) -> None:
    answer = await api.post(TOKEN, {})
    assert answer.status == 201
    assert (answer.tree["apiVersion"], answer.tree["kind"]) == ("authentication.k8s.io/v1", "TokenRequest")
    assert (answer.tree["metadata"]["name"], answer.tree["metadata"]["namespace"]) == ("robot", "default")
    assert answer.tree["spec"] == {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None}
    assert answer.tree["metadata"]["uid"] == (await api.get(f"{NS}/serviceaccounts/robot")).tree["metadata"]["uid"]
    claims = claims_of(answer.tree["status"]["token"])
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["nbf"] == claims["iat"]
    assert claims["kubernetes.io"]["serviceaccount"]["name"] == "robot"
    assert claims["kubernetes.io"].keys() == {"namespace", "serviceaccount"}
    assert claims["sub"] == "system:serviceaccount:default:robot"


async def test_token_request_is_not_stored(api) -> None:
    before = (await api.get(f"{NS}/serviceaccounts/robot")).tree
    await token(api)
    assert (await api.get(f"{NS}/serviceaccounts/robot")).tree == before


async def test_token_authenticates_the_account(api) -> None:
    answer = await as_holder(api, await token(api), WHO_AM_I)
    assert isinstance(answer.body, bytes)
    user = json.loads(answer.body)["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:robot"
    assert set(user["groups"]) == {
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    }
    assert user["extra"].keys() == {"authentication.kubernetes.io/credential-id"}


@pytest.mark.parametrize(
    ("spec", "code", "field"),
    [
        ({"expirationSeconds": 599}, 422, "spec.expirationSeconds"),
        ({"expirationSeconds": -1}, 422, "spec.expirationSeconds"),
        ({"expirationSeconds": 2**32 + 1}, 422, "spec.expirationSeconds"),
        ({"expirationSeconds": 2**32}, 201, ""),
        ({"expirationSeconds": None, "boundObjectRef": None}, 201, ""),
        ({"expirationSeconds": "soon"}, 400, "spec.expirationSeconds"),
        ({"audiences": "us"}, 400, "spec.audiences"),
        ({"boundObjectRef": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "x"}}, 400, "apps/v1, Kind=Depl"),
        ({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}, 400, "/v1, Kind=ConfigMap"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "x"}}, 404, 'pods "x" not found'),
        ({"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "x"}}, 404, 'nodes "x" not found'),
        ({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": ""}}, 404, "secrets"),
    ],
)
async def test_token_request_is_validated(api, spec: dict[str, Any], code: int, field: str) -> None:
    answer = await api.post(TOKEN, {"spec": spec})
    assert answer.status == code
    assert field in answer.tree.get("message", "")
    if code == 422:
        assert [cause["field"] for cause in answer.tree["details"]["causes"]] == [field]


async def test_token_request_for_another_namespace_is_a_bad_request(api) -> None:
    assert (await api.post(TOKEN, {"metadata": {"name": "robot", "namespace": "another"}})).status == 400


async def test_token_for_another_uid_of_the_account_is_a_conflict(api) -> None:
    answer = await api.post(TOKEN, {"metadata": {"uid": "of-the-account-before"}})
    assert (answer.status, answer.tree["reason"]) == (409, "Conflict")
    assert answer.tree["details"] == {"name": "robot", "group": "authentication.k8s.io", "kind": "TokenRequest"}
    uid = (await api.get(f"{NS}/serviceaccounts/robot")).tree["metadata"]["uid"]
    answer = await api.post(TOKEN, {"metadata": {"uid": uid}})
    assert (answer.status, answer.tree["metadata"]["uid"]) == (201, uid)


async def test_token_of_another_name_is_invalid(api) -> None:
    answer = await api.post(TOKEN, {"metadata": {"name": "other"}})
    assert (answer.status, answer.tree["details"]["kind"], answer.tree["details"]["name"]) == (
        422,
        "TokenRequest",
        "robot",
    )
    assert [(each["reason"], each["field"]) for each in answer.tree["details"]["causes"]] == [
        ("FieldValueInvalid", "metadata.name")
    ]


async def test_token_request_is_checked_before_validating_admission(api) -> None:
    """A policy that denies all is evaluated last, as in kube-apiserver."""
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["serviceaccounts/token"]}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]}
    await api.post(f"{policies}ies", {"metadata": {"name": "no"}, "spec": policy})
    binding = {"policyName": "no", "validationActions": ["Deny"]}
    await api.post(f"{policies}ybindings", {"metadata": {"name": "no"}, "spec": binding})
    denied, short = "expression: false", {"expirationSeconds": 1}
    assert denied in (await api.post(TOKEN, {})).tree["message"]
    for url, body, expected in (
        (TOKEN.replace("robot", "missing"), {"metadata": {"uid": "x"}}, 404),
        (TOKEN, {"metadata": {"uid": "x"}, "spec": short}, 409),
        (TOKEN, {"spec": short}, 422),
    ):
        answer = await api.post(url, body)
        assert (answer.status, denied in answer.tree["message"]) == (expected, False)


async def test_missing_account_gets_no_token(api) -> None:
    answer = await api.post(f"{NS}/serviceaccounts/nobody/token", {})
    assert (answer.status, answer.tree["reason"]) == (404, "NotFound")
    assert answer.tree["details"]["kind"] == "serviceaccounts"
    assert (await api.get(TOKEN)).status == 405


async def test_token_of_recreated_account_is_invalid(api) -> None:
    shown = await token(api)
    assert (await as_holder(api, shown)).status == 200
    await api.delete(f"{NS}/serviceaccounts/robot")
    assert (await as_holder(api, shown)).status == 401
    await prepare(api)
    assert (await as_holder(api, shown)).status == 401
    assert "no longer exists" in (await review(api, shown))["error"]


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        ("Pod", f"{NS}/pods", POD),
        ("Secret", f"{NS}/secrets", {"metadata": {"name": "p"}}),
        ("Node", "/api/v1/nodes", {"metadata": {"name": "p"}}),
    ],
)
async def test_bound_token_is_valid_while_its_object_exists(api, kind: str, path: str, body: Any) -> None:
    made = (await api.post(path, body)).tree
    ref = {"kind": kind, "apiVersion": "v1", "name": "p"}
    answer = await api.post(TOKEN, {"spec": {"boundObjectRef": {**ref, "uid": "another"}}})
    assert (answer.status, answer.tree["reason"]) == (409, "Conflict")
    shown = await token(api, boundObjectRef={**ref, "uid": made["metadata"]["uid"]})
    assert claims_of(shown)["kubernetes.io"][kind.lower()] == {"name": "p", "uid": made["metadata"]["uid"]}
    assert (await as_holder(api, shown)).status == 200
    await api.delete(f"{path}/p?gracePeriodSeconds=0")
    assert (await as_holder(api, shown)).status == 401


async def test_token_bound_to_pod_names_its_node(api) -> None:
    node = (await api.post("/api/v1/nodes", {"metadata": {"name": "n"}})).tree
    await api.post(f"{NS}/pods", {**POD, "spec": {**POD["spec"], "nodeName": "n"}})
    shown = await token(api, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    extra = (await review(api, shown))["user"]["extra"]
    prefix = "authentication.kubernetes.io"
    assert extra[f"{prefix}/pod-name"] == ["p"]
    assert extra[f"{prefix}/node-name"] == ["n"]
    assert extra[f"{prefix}/node-uid"] == [node["metadata"]["uid"]]
    await api.delete("/api/v1/nodes/n")
    assert (await as_holder(api, shown)).status == 200
    assert "node-uid" not in str(claims_of(await token(api, boundObjectRef={"kind": "Pod", "name": "p"})))


async def test_token_cannot_be_bound_to_pod_of_another_account(api) -> None:
    await api.post(f"{NS}/serviceaccounts", {"metadata": {"name": "other"}})
    await api.post(f"{NS}/pods", {**POD, "spec": {**POD["spec"], "serviceAccountName": "other"}})
    answer = await api.post(TOKEN, {"spec": {"boundObjectRef": {"kind": "Pod", "name": "p"}}})
    assert answer.status == 400
    assert 'does not run as the service account "robot"' in answer.tree["message"]


async def test_token_is_valid_for_its_audiences_only(api) -> None:
    shown = await token(api, audiences=["vault", "them"])
    assert (await as_holder(api, shown)).status == 401
    assert "authenticated" not in await review(api, shown)
    assert (await review(api, shown, "them", "others"))["audiences"] == ["them"]


# --- flags ---


async def test_maximum_lifetime_follows_the_flag(started) -> None:
    async with started("--service-account-max-token-expiration=2h") as api:
        await prepare(api)
        response = await api.send("POST", TOKEN, {"spec": {"expirationSeconds": 10000}})
        answer = json.loads(response.body)
        assert answer["spec"]["expirationSeconds"] == 7200
        claims = claims_of(answer["status"]["token"])
        assert claims["exp"] - claims["iat"] == 7200
        assert "requested expiration of 10000 seconds shortened to 7200 seconds" in response.headers["warning"]


@pytest.mark.parametrize(("extend", "life"), [("true", 365 * 24 * 3600), ("false", 3607)])
async def test_lifetime_of_pod_tokens_is_extended(started, extend: str, life: int) -> None:
    async with started(f"--service-account-extend-token-expiration={extend}") as api:
        await prepare(api)
        await api.post(f"{NS}/pods", POD)
        ref = {"kind": "Pod", "name": "p"}
        claims = claims_of(await token(api, expirationSeconds=3607, boundObjectRef=ref))
        assert claims["exp"] - claims["iat"] == life
        assert claims["kubernetes.io"].get("warnafter", 0) == (claims["iat"] + 3607 if extend == "true" else 0)
        for spec in (
            {"expirationSeconds": 3607},
            {"expirationSeconds": 3600, "boundObjectRef": ref},
            {"expirationSeconds": 3607, "boundObjectRef": ref, "audiences": ["vault"]},
        ):
            claims = claims_of(await token(api, **spec))
            assert claims["exp"] - claims["iat"] == spec["expirationSeconds"]
            assert "warnafter" not in claims["kubernetes.io"]


async def test_issuers_and_audiences_follow_the_flags(started) -> None:
    flags = ("--service-account-issuer=https://a", "--service-account-issuer=b", "--api-audiences=us,too")
    async with started(*flags) as api:
        await prepare(api)
        shown = await token(api)
        assert (claims_of(shown)["iss"], claims_of(shown)["aud"]) == ("https://a", ["us", "too"])
        assert (await as_holder(api, shown)).status == 200
        assert (await as_holder(api, await token(api, audiences=["https://a"]))).status == 401


async def test_without_lookup_token_outlives_its_account(started) -> None:
    async with started("--service-account-lookup=false") as api:
        await prepare(api)
        shown = await token(api)
        await api.delete(f"{NS}/serviceaccounts/robot")
        assert (await as_holder(api, shown)).status == 200


async def test_tokens_survive_restart_with_the_same_key(started, tmp_path) -> None:
    signing = (f"--data-dir={tmp_path}", "--storage-backend=sqlite")
    async with started(*signing) as api:
        await prepare(api)
        shown = await token(api)
    key = f"--service-account-signing-key-file={tmp_path / 'sa.key'}"
    async with started(key, f"--service-account-key-file={tmp_path / 'sa.pub'}") as api:
        assert (await as_holder(api, shown)).status == 200
        own = await token(api)
    async with started() as api:  # with its own key
        assert (await as_holder(api, own)).status == 401


async def test_tokens_can_be_verified_with_published_keys(started) -> None:
    async with started("--secure-port=6443") as api:
        await prepare(api)
        shown = await token(api)
        found = await api.get("/.well-known/openid-configuration")
        assert (found.status, found.tree["issuer"]) == (200, ISSUER)
        assert found.tree["jwks_uri"] == "https://192.0.2.1:6443/openid/v1/jwks"
        response = await api.send("GET", "/openid/v1/jwks")
        assert response.headers["content-type"] == "application/jwk-set+json"
        keys = jwt.PyJWKSet.from_dict(json.loads(response.body))
        named = jwt.get_unverified_header(shown)["kid"]
        claims = jwt.decode(shown, keys[named], found.tree["id_token_signing_alg_values_supported"], audience=ISSUER)
        assert claims["sub"] == "system:serviceaccount:default:robot"
        assert "/openid/v1/jwks" in (await api.get("/")).tree["paths"]


async def test_jwks_uri_follows_the_flag(started) -> None:
    async with started("--service-account-jwks-uri=https://keys/here") as api:
        assert (await api.get("/.well-known/openid-configuration")).tree["jwks_uri"] == "https://keys/here"
    async with started("--service-account-issuer=somebody") as api:
        assert (await api.get("/.well-known/openid-configuration")).status == 404
        assert (await api.get("/openid/v1/jwks")).status == 404


async def test_forged_token_gets_no_details(api) -> None:
    header, payload, signature = (await token(api)).split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["kubernetes.io"]["namespace"] = "kube-system"
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    answer = await as_holder(api, f"{header}.{forged}.{signature}")
    assert (answer.status, json.loads(answer.body)["message"]) == (401, "Unauthorized")


@pytest.mark.parametrize("flag", ["--service-account-signing-key-file", "--service-account-key-file"])
async def test_unusable_key_fails_the_start(started, tmp_path, flag: str) -> None:
    good = own_key(tmp_path) and tmp_path / "sa.key"
    bad = tmp_path / "bad.pem"
    bad.write_text("nonsense")
    with pytest.raises(ValueError, match=f"{flag}: {bad} holds no key"):
        async with started(f"--service-account-signing-key-file={good}", f"{flag}={bad}"):
            pass
