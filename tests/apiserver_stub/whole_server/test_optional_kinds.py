"""Kinds that are off by default, on a whole server: answers of kube-apiserver 1.36 to the same requests; feature gates
and --runtime-config decide which kinds are served. Error messages are our own.
"""

import json
from base64 import b64encode
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from apiserver_stub.common.error_list import ErrorList
from apiserver_stub.common.flags import FLAGS, ApiOptions
from apiserver_stub.kinds.rules.pod_certificates import RULES
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now
from tests.apiserver_stub.running_server import Started
from tests.apiserver_stub.whole_server.recorded_requests import difference, outcome, substituted, value_at

DATA = Path(__file__).parent / "data"
ROWS = [
    json.loads(line)
    for name in ("optional_kinds.jsonl", "device_kinds.jsonl")
    for line in (DATA / name).read_text().splitlines()
]
GATES = "StorageVersionMigrator=true,PodCertificateRequest=true,ClusterTrustBundle=true,StorageVersionAPI=true"
DEVICES = "DRADeviceTaintRules=true,DRAResourcePoolStatus=true"
ALL = ("--runtime-config=api/all=true", f"--feature-gates={GATES},{DEVICES}")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def headers_of(step: Any) -> dict[str, str]:
    user = step.get("user", "")
    group = "system:nodes" if user.startswith("system:node:") else "system:authenticated"
    return {
        "content_type": step.get("content_type", "application/json"),
        **({"impersonate_user": user, "impersonate_group": group} if user else {}),
        **({"accept": TABLE} if step.get("accept") else {}),
    }


async def test_answers_match_kube_apiserver(started: Started) -> None:
    wrong, captured = [], dict[str, Any]()
    restricted = ("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction")
    async with started(*restricted, *ALL) as api:
        for row in ROWS:
            for number, step in enumerate(row["steps"]):
                body = substituted(step.get("body"), captured)
                answer = await api.send(step["verb"], unquote(step["path"]), body, **headers_of(step))
                warnings = [
                    text.removeprefix('299 - "')[:-1].replace('\\"', '"') for text in answer.repeated.get("warning", ())
                ]
                tree = json.loads(answer.body)
                found = outcome(step, answer.status, tree, warnings)
                if step.get("accept"):
                    found = _aged(found)
                captured |= {name: value_at(tree, path) for name, path in (step.get("capture") or {}).items()}
                if what := difference(step, found, messages=False):
                    wrong.append(f"{row['what']} {number}: {what}")
    assert not wrong, "\n".join(wrong)


def _aged(found: Any) -> Any:
    found.pop("warnings", None)
    for column, definition in enumerate(found["body_out"]["columnDefinitions"]):
        definition.pop("description", None)
        if definition["name"] == "Age":
            found["body_out"]["rows.0.cells"][column] = "<age>"
    return found


@pytest.mark.parametrize(
    ("words", "served"),
    [
        ("", ()),
        ("api/all=true", ("v1alpha1", "v1beta1")),
        ("api/beta=true", ("v1beta1",)),
        ("api/alpha=true", ("v1alpha1",)),
        ("api/all=true,api/beta=false", ("v1alpha1",)),
        ("certificates.k8s.io/v1beta1=true", ("v1beta1",)),
        ("api/beta=true,certificates.k8s.io/v1beta1=false", ()),
        ("certificates.k8s.io/v1beta1=true,certificates.k8s.io/v1beta1/clustertrustbundles=false", ()),
        ("certificates.k8s.io/v1beta1/clustertrustbundles=true", ("v1beta1",)),
        ("api/ga=false", ()),
    ],
)
def test_most_specific_runtime_config_entry_wins(words: str, served: tuple[str, ...]) -> None:
    options = FLAGS.parse((f"--runtime-config={words}",))[ApiOptions]
    versions = ("v1alpha1", "v1beta1")
    assert tuple(v for v in versions if options.serves("certificates.k8s.io", v, "clustertrustbundles")) == served
    assert options.serves("apps", "v1", "deployments") is (words != "api/ga=false")


@pytest.mark.parametrize("words", ["nothing", "a/b/c/d=true", "apps/v1=maybe", "api/all=1", "apps/v1/Deployments=true"])
def test_unknown_runtime_config_entry_is_rejected(words: str) -> None:
    with pytest.raises(Exception, match="runtime-config"):
        FLAGS.parse((f"--runtime-config={words}",))


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 404),
        (("--runtime-config=api/beta=true",), 404),
        (("--feature-gates=ClusterTrustBundle=true",), 404),
        (("--feature-gates=ClusterTrustBundle=true", "--runtime-config=api/beta=true"), 200),
    ],
)
async def test_resource_needs_its_version_and_feature(started: Started, flags: tuple[str, ...], code: int) -> None:
    async with started(*flags) as api:
        assert (await api.get("/apis/certificates.k8s.io/v1beta1/clustertrustbundles")).status == code
        assert (await api.get("/apis/certificates.k8s.io/v1/certificatesigningrequests")).status == 200
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:cluster-trust-bundle-discovery"
        assert (await api.get(path)).status == (200 if "--feature-gates=ClusterTrustBundle=true" in flags else 404)


async def test_stable_version_can_be_disabled(started: Started) -> None:
    async with started("--runtime-config=autoscaling/v1=false,apps/v1/controllerrevisions=false") as api:
        assert (await api.get("/apis/autoscaling/v1/horizontalpodautoscalers")).status == 404
        assert (await api.get("/apis/autoscaling/v2/horizontalpodautoscalers")).status == 200
        assert (await api.get("/apis/apps/v1/controllerrevisions")).status == 404
        assert (await api.get("/apis/apps/v1/deployments")).status == 200


KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))


def issued(**changes: Any) -> tuple[Any, Any]:
    """A request, and the status with its certificate, changed; times are in minutes from now."""
    given = {"before": 0, "after": 300, "refresh": 180, "names": (), "mail": (), "key": KEY, "chain": None} | changes
    now = utc_now().replace(microsecond=0)
    before, after, refresh = (now + timedelta(minutes=given[name]) for name in ("before", "after", "refresh"))
    names = [*map(x509.DNSName, given["names"]), *map(x509.RFC822Name, given["mail"])]
    builder = x509.CertificateBuilder(
        x509.Name([]), x509.Name([]), given["key"].public_key(), 7, before, after
    )  # fmt: skip
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    chain = builder.sign(KEY, None).public_bytes(Encoding.PEM).decode()
    request = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(KEY, None).public_bytes(Encoding.DER)
    spec = {"stubPKCS10Request": b64encode(request).decode(), "maxExpirationSeconds": 86400}
    condition = {"type": "Issued", "status": "True", "reason": "R", "lastTransitionTime": format_time(now)}
    status = {"notBefore": format_time(before), "notAfter": format_time(after), "beginRefreshAt": format_time(refresh)}
    status |= {"conditions": [condition], "certificateChain": given["chain"] if given["chain"] is not None else chain}
    status = {name: value for name, value in (status | given.get("status", {})).items() if value is not None}
    return {"spec": spec}, {"spec": spec, "status": status}


CHAIN = "status.certificateChain"
NO_CERTIFICATE = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"chain": ""}, [(CHAIN, "Invalid")]),
        ({"chain": "-----BEGIN X-----\naGVsbG8=\n-----END X-----\n"}, [(CHAIN, "Invalid")]),
        ({"chain": NO_CERTIFICATE}, [(CHAIN, "Invalid")]),
        ({"chain": "x" * 102_401}, [(CHAIN, "TooLong")]),
        ({"key": OTHER}, [(CHAIN, "Invalid")]),
        ({"names": ("a..b", ".c", "d.")}, [(CHAIN, "Invalid")] * 3),
        ({"mail": ("nope",)}, [(CHAIN, "Invalid")]),
        (
            {"status": {"notBefore": None, "beginRefreshAt": None}},
            [("status.beginRefreshAt", "Required"), ("status.notBefore", "Required")],
        ),
        ({"status": {"notBefore": "2026-01-01T00:00:00Z"}}, [("status.notBefore", "Invalid")]),
        ({"status": {"notAfter": "2026-01-01T00:00:00Z"}}, [("status.notAfter", "Invalid")]),
        ({"before": -60}, [("status.notBefore", "Invalid")]),
        ({"after": 59, "refresh": 30}, [(CHAIN, "Invalid")]),
        ({"after": 25 * 60}, [(CHAIN, "Invalid")]),
        ({"refresh": 9}, [("status.beginRefreshAt", "Invalid")]),
        ({"refresh": 291}, [("status.beginRefreshAt", "Invalid")]),
    ],
)
def test_pod_certificate_must_match_its_request(changes: Any, expected: list[tuple[str, str]]) -> None:
    old, new = issued(**changes)
    errors = ErrorList()
    RULES["certificates.k8s.io/v1beta1/PodCertificateRequest"].subresources["status"](new, old, errors)
    assert sorted((cause.field, cause.reason.removeprefix("FieldValue")) for cause in errors.causes) == expected


def test_certificate_chain_must_contain_certificates() -> None:
    old, new = issued()
    new["status"]["certificateChain"] += NO_CERTIFICATE
    errors = ErrorList()
    RULES["certificates.k8s.io/v1beta1/PodCertificateRequest"].subresources["status"](new, old, errors)
    assert [cause.field for cause in errors.causes] == [CHAIN]


async def test_apply_to_recreated_object_conflicts(started: Started) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    async with started() as api:
        before = (await api.post(path, {"metadata": {"name": "c"}})).tree
        await api.delete(f"{path}/c")
        await api.post(path, {"metadata": {"name": "c"}})
        named = {name: before["metadata"][name] for name in ("name", "uid", "resourceVersion")}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named}
        media = "application/apply-patch+yaml"
        answer = await api.ask("PATCH", f"{path}/c?fieldManager=m", body, content_type=media)
        assert (answer.status, answer.tree["reason"]) == (409, "Conflict")
        del named["resourceVersion"]
        assert (await api.ask("PATCH", f"{path}/c?fieldManager=m", body, content_type=media)).status == 422
        await api.delete(f"{path}/c")
        assert (await api.ask("PATCH", f"{path}/c?fieldManager=m", body, content_type=media)).status == 409
