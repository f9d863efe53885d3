"""Pod Security Standards: every check as recorded from Kubernetes 1.36, and the admission plugin."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from apiserver_stub.admission import Admission, Attributes, Operation
from apiserver_stub.admission.plugins.pod_security import PodSecurity, PodSecurityConfiguration, existing
from apiserver_stub.admission.plugins.pod_security.checks import violations
from apiserver_stub.admission.plugins.pod_security.pods import CheckedPod
from apiserver_stub.admission.plugins.pod_security.policy import CONFIGURATION_TYPES, LevelVersion, check
from apiserver_stub.common.config_file import ConfigFileError, parse_config
from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.strategies.pods import sync_app_armor
from apiserver_stub.storage.interface import Write
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import Forbidden, InternalError, Invalid
from controller_manager.common.serving.authentication import User

KINDS = {kind.storage: kind for kind in built_in().all()}
ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "pod_security.jsonl").read_text().splitlines()]
VERSIONS = (*(f"v1.{minor}" for minor in (0, 7, 8, 18, 19, *range(21, 37), 99)), "latest")
"""Versions before and after every change of a check; `latest` is later than all others."""
LABEL = "pod-security.kubernetes.io/"
HOST = {"containers": [{"name": "c", "image": "i"}], "hostPID": True}
PLAIN = {"containers": [{"name": "c", "image": "i"}]}
HOST_PID = "host namespaces (hostPID=true)"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"])
def test_every_check_matches_recorded_levels_and_versions(row: Any) -> None:
    """A row has, for each level, the versions at which the result changes."""
    tree = {"kind": "Pod", "apiVersion": "v1", **row["pod"]}
    apply_defaults(tree, KINDS["pods"])
    sync_app_armor(tree)
    for level in ("baseline", "restricted"):
        expected = ""
        for version in VERSIONS:
            expected = row[level].get(version, expected)
            found = violations(LevelVersion(level, version), CheckedPod.of(tree))
            assert ", ".join(map(str, found)) == expected, (level, version)
    assert not violations(LevelVersion("privileged"), CheckedPod.of(tree))


def labelled(**labels: str) -> dict[str, str]:
    return {f"{LABEL}{name.replace('_', '-')}": value for name, value in labels.items()}


async def put(store: WatchCache, resource: str, key: str, metadata: Mapping[str, Any], spec: Any = None) -> None:
    named = {"resourceVersion": "", "name": key.rpartition("/")[2], **metadata}
    await store.commit(Write(resource, key, 0, json.dumps({"metadata": named, "spec": spec or {}}).encode()))


def attributes_of(
    tree: Any,
    old: Any = None,
    resource: str = "pods",
    subresource: str = "",
    name: str = "p",
    namespace: str = "n",
    user: str = "alice",
) -> Attributes:
    operation: Operation = "create" if old is None else "update"
    return Attributes(operation, KINDS[resource], namespace, name, subresource, tree, old, User(user))


def pod(spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec}


def configured(**exemptions: list[str]) -> PodSecurityConfiguration:
    document = {"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"}
    data = json.dumps({**document, "exemptions": exemptions}).encode()
    return parse_config(data, Path("file"), "PodSecurityConfiguration", CONFIGURATION_TYPES)


async def test_pod_is_rejected_warned_and_annotated(store: WatchCache) -> None:
    await put(store, "namespaces", "n", {"labels": labelled(enforce="baseline", audit="restricted", warn="restricted")})
    registry = CollectorRegistry()
    admission = Admission([PodSecurity(store, registry).plugin()])
    refused, warned = attributes_of(pod(HOST)), attributes_of(pod(PLAIN))
    with pytest.raises(Forbidden) as error:
        await admission.validate(refused)
    assert error.value.message == f'pods "p" is forbidden: violates PodSecurity "baseline:latest": {HOST_PID}'
    assert not refused.notes.warnings, "who is refused is not warned as well"
    assert refused.notes.annotations[f"{LABEL}enforce-policy"] == "baseline:latest"
    violated = f'would violate PodSecurity "restricted:latest": {HOST_PID}, allowPrivilegeEscalation'
    assert refused.notes.annotations[f"{LABEL}audit-violations"].startswith(violated)

    await admission.validate(warned)
    (warning,) = warned.notes.warnings
    assert warning == warned.notes.annotations[f"{LABEL}audit-violations"]
    assert warning.startswith('would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false (')

    def counted(decision: str, level: str, mode: str) -> float | None:
        labels = {"decision": decision, "policy_level": level, "policy_version": "latest", "mode": mode}
        about = {"request_operation": "create", "resource": "pod", "subresource": ""}
        return registry.get_sample_value("pod_security_evaluations_total", {**labels, **about})

    assert counted("deny", "baseline", "enforce") == counted("allow", "baseline", "enforce") == 1
    assert counted("deny", "restricted", "audit") == 2
    assert counted("deny", "restricted", "warn") == 1


@pytest.mark.parametrize(
    ("new", "old", "subresource", "refused"),
    [
        (HOST, HOST, "", False),
        ({**HOST, "containers": [{"name": "c", "image": "j"}]}, HOST, "", True),
        ({**HOST, "initContainers": [{"name": "d", "image": "i"}]}, HOST, "", True),
        ({**HOST, "ephemeralContainers": [{"name": "e", "image": "i"}]}, HOST, "ephemeralcontainers", True),
        (
            {**HOST, "ephemeralContainers": [{"name": "e", "image": "i"}]},
            {**HOST, "ephemeralContainers": [{"name": "e", "image": "j"}]},
            "ephemeralcontainers",
            True,
        ),
        ({**HOST, "containers": [{"name": "c", "image": "i", "resources": {}}]}, HOST, "resize", False),
        ({**HOST, "containers": [{"name": "c", "image": "j"}]}, HOST, "resize", True),
        ({**HOST, "containers": [{"name": "c", "image": "j"}]}, HOST, "status", False),
    ],
)
async def test_pod_updates_are_checked_if_relevant_fields_change(
    store: WatchCache, new: Any, old: Any, subresource: str, refused: bool
) -> None:
    await put(store, "namespaces", "n", {"labels": labelled(enforce="baseline")})
    admission = Admission([PodSecurity(store).plugin()])
    try:
        await admission.validate(attributes_of(pod(new), pod(old), subresource=subresource))
    except Forbidden:
        assert refused
    else:
        assert not refused


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("podtemplates", ("template",)),
        ("cronjobs.batch", ("spec", "jobTemplate", "spec", "template")),
        *((name, ("spec", "template")) for name in ("replicationcontrollers", "deployments.apps", "replicasets.apps")),
        *((name, ("spec", "template")) for name in ("statefulsets.apps", "daemonsets.apps", "jobs.batch")),
    ],
)
async def test_workload_owners_get_warnings_but_are_admitted(
    store: WatchCache, resource: str, path: tuple[str, ...]
) -> None:
    await put(store, "namespaces", "n", {"labels": labelled(enforce="baseline", enforce_version="v1.20")})
    tree: Any = {"spec": HOST}
    for step in reversed(path):
        tree = {step: tree}
    attributes = attributes_of(tree, resource=resource)
    await Admission([PodSecurity(store).plugin()]).validate(attributes)
    assert list(attributes.notes.warnings) == [f'would violate PodSecurity "baseline:v1.20": {HOST_PID}']
    assert attributes.notes.annotations == {}, "nothing is to be audited, and of owners nothing is enforced"
    await Admission([PodSecurity(store).plugin()]).validate(
        attributes_of({"spec": {}}, resource="replicationcontrollers")
    )


@pytest.mark.parametrize(
    ("exemptions", "why"),
    [
        ({"usernames": ["robot"]}, "user"),
        ({"namespaces": ["n"]}, "namespace"),
        ({"runtimeClasses": ["sealed"]}, "runtimeClass"),
        ({"usernames": ["other"], "namespaces": ["m"], "runtimeClasses": ["open"]}, ""),
    ],
)
async def test_users_namespaces_and_runtime_classes_can_be_exempt(
    store: WatchCache, exemptions: dict[str, list[str]], why: str
) -> None:
    await put(store, "namespaces", "n", {"labels": labelled(enforce="baseline")})
    registry = CollectorRegistry()
    admission = Admission([PodSecurity(store, registry, configured(**exemptions)).plugin()])
    attributes = attributes_of(pod({**HOST, "runtimeClassName": "sealed"}), user="robot")
    if not why:
        with pytest.raises(Forbidden):
            await admission.validate(attributes)
        return
    await admission.validate(attributes)
    assert attributes.notes.annotations == {f"{LABEL}exempt": why}
    counted = {"request_operation": "create", "resource": "pod", "subresource": ""}
    assert registry.get_sample_value("pod_security_exemptions_total", counted) == 1


async def test_pods_of_namespaces_without_labels_are_admitted(store: WatchCache) -> None:
    await put(store, "namespaces", "n", {"labels": {"kubernetes.io/metadata.name": "n"}})
    attributes = attributes_of(pod(HOST))
    await Admission([PodSecurity(store).plugin()]).validate(attributes)
    assert attributes.notes.annotations == {f"{LABEL}enforce-policy": "privileged:latest"}


async def test_configured_defaults_apply(store: WatchCache) -> None:
    await put(store, "namespaces", "n", {"labels": labelled(warn="privileged")})
    data = b"""
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}
"""
    parsed = parse_config(data, Path("file"), "PodSecurityConfiguration", CONFIGURATION_TYPES)
    assert not check(parsed).causes
    attributes = attributes_of(pod(HOST))
    with pytest.raises(Forbidden, match=r"baseline:v1\.30"):
        await Admission([PodSecurity(store, configuration=parsed).plugin()]).validate(attributes)
    with pytest.raises(ConfigFileError):
        parse_config(data + b"other: 1\n", Path("file"), "PodSecurityConfiguration", CONFIGURATION_TYPES)


def test_configuration_is_validated() -> None:
    data = {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "tight", "audit-version": "1.2"},
        "exemptions": {"namespaces": ["a", "a", "B"], "usernames": [""], "runtimeClasses": ["a.b", "-"]},
    }
    parsed = parse_config(json.dumps(data).encode(), Path("file"), "PodSecurityConfiguration", CONFIGURATION_TYPES)
    assert [(cause.field, cause.reason) for cause in check(parsed).causes] == [
        ("defaults.enforce", "FieldValueInvalid"),
        ("defaults.audit-version", "FieldValueInvalid"),
        ("exemptions.namespaces[1]", "FieldValueDuplicate"),
        ("exemptions.namespaces[2]", "FieldValueInvalid"),
        ("exemptions.runtimeClasses[1]", "FieldValueInvalid"),
        ("exemptions.usernames[0]", "FieldValueInvalid"),
    ]


async def test_invalid_labels_enforce_restricted_and_are_reported(store: WatchCache) -> None:
    await put(store, "namespaces", "n", {"labels": labelled(enforce="tight", warn="tight")})
    registry = CollectorRegistry()
    attributes = attributes_of(pod(HOST))
    with pytest.raises(Forbidden, match="restricted:latest"):
        await Admission([PodSecurity(store, registry).plugin()]).validate(attributes)
    assert attributes.notes.annotations[f"{LABEL}error"].startswith(
        "Failed to parse policy: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value"
    )
    counted = {"fatal": "false", "request_operation": "create", "resource": "pod", "subresource": ""}
    assert registry.get_sample_value("pod_security_errors_total", counted) == 1


async def test_missing_namespace_rejects_pods_only(store: WatchCache) -> None:
    admission = Admission([PodSecurity(store).plugin()])
    refused, accepted = attributes_of(pod(PLAIN)), attributes_of({"spec": {}}, resource="deployments.apps")
    with pytest.raises(InternalError):
        await admission.validate(refused)
    await admission.validate(accepted)
    why = 'failed to lookup namespace "n": namespaces "n" not found'
    assert refused.notes.annotations == {f"{LABEL}error": f"Internal error occurred: {why}"}
    assert accepted.notes.annotations == {f"{LABEL}error": why}


def namespace(old: dict[str, str] | None, new: dict[str, str]) -> Attributes:
    before = None if old is None else {"metadata": {"labels": labelled(**old)}}
    return attributes_of({"metadata": {"labels": labelled(**new)}}, before, "namespaces", name="n", namespace="")


@pytest.mark.parametrize(
    ("old", "new", "is_refused"),
    [
        (None, {"enforce": "tight"}, True),
        (None, {"enforce_version": "v1.01"}, True),
        (None, {"enforce_version": "v1.99999999999999999999"}, True),
        (None, {"enforce": "restricted", "warn_version": "v1.99"}, False),
        ({}, {"audit": "Baseline"}, True),
        ({"audit": "Baseline"}, {"audit": "Baseline"}, False),
        ({"audit": "Baseline"}, {"audit": "Baseline", "warn": "x"}, True),
    ],
)
async def test_namespace_labels_are_validated(
    store: WatchCache, old: dict[str, str] | None, new: dict[str, str], is_refused: bool
) -> None:
    admission = Admission([PodSecurity(store).plugin()])
    try:
        await admission.validate(namespace(old, new))
    except Invalid:
        assert is_refused
    else:
        assert not is_refused


async def warnings(store: WatchCache, old: dict[str, str], new: dict[str, str], **exemptions: list[str]) -> list[str]:
    attributes = namespace(old, new)
    await Admission([PodSecurity(store, configuration=configured(**exemptions)).plugin()]).validate(attributes)
    return list(attributes.notes.warnings)


async def test_stricter_label_warns_about_existing_pods(store: WatchCache) -> None:
    owner = {"ownerReferences": [{"uid": "u", "controller": True}]}
    for name in ("p1", "p2"):
        await put(store, "pods", f"n/{name}", {}, HOST)
    for name in ("a", "b", "c"):
        await put(store, "pods", f"n/{name}", owner, {**PLAIN, "hostIPC": True})
    await put(store, "pods", "n/fine", {}, PLAIN)
    await put(store, "pods", "n/sealed", {}, {**PLAIN, "hostNetwork": True, "runtimeClassName": "sealed"})
    await put(store, "pods", "n2/elsewhere", {}, {**PLAIN, "hostNetwork": True})
    first = 'existing pods in namespace "n" violate the new PodSecurity enforce level "baseline:latest"'
    expected = [first, "a (and 4 other pods): host namespaces"]
    assert await warnings(store, {}, {"enforce": "baseline"}, runtimeClasses=["sealed"]) == expected
    assert await warnings(store, {}, {"enforce": "baseline"}) == [first, "a (and 5 other pods): host namespaces"]
    for old, new in (
        ({"enforce": "restricted"}, {"enforce": "baseline"}),
        ({"enforce": "baseline"}, {"enforce": "privileged"}),
        ({"enforce": "baseline"}, {"enforce": "baseline", "warn": "restricted"}),
    ):
        assert await warnings(store, old, new) == []
    (again, _) = await warnings(store, {"enforce": "restricted"}, {"enforce": "baseline", "enforce_version": "v1.1"})
    assert again == first.replace("latest", "v1.1")


async def test_existing_pods_check_is_limited_in_number(store: WatchCache) -> None:
    owner = {"ownerReferences": [{"uid": "u", "controller": True}]}
    for number in range(3000):
        await put(store, "pods", f"n/p{number:04}", owner, PLAIN)
    await put(store, "pods", "n/z", {}, HOST)
    reported = await warnings(store, {}, {"enforce": "baseline"})
    assert reported[0] == "new PodSecurity enforce level only checked against the first 3000 of 3001 existing pods"
    assert reported[2] == "z: host namespaces", "those that others stand for come last"


async def test_existing_pods_check_is_limited_in_time(store: WatchCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(existing, "_LONGEST", -1.0)
    for name in ("a", "b"):
        await put(store, "pods", f"n/{name}", {}, PLAIN)
    expected = ["new PodSecurity enforce level only checked against the first 1 of 2 existing pods"]
    assert await warnings(store, {}, {"enforce": "baseline"}) == expected


async def test_labels_of_exempt_namespaces_get_a_warning(store: WatchCache) -> None:
    await put(store, "pods", "n/a", {}, HOST)
    policy = "enforce=baseline:latest, warn=restricted:v1.30"
    expected = f'namespace "n" is exempt from Pod Security, and the policy ({policy}) will be ignored'
    labels = {"enforce": "baseline", "warn": "restricted", "warn_version": "v1.30"}
    assert await warnings(store, {}, labels, namespaces=["n"]) == [expected]
