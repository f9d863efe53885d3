"""Decisions about storage migrations, storage versions and trust bundles."""

import json
from typing import Any

import pytest

from controller_manager.common.api.apiextensions import CustomResourceDefinition
from controller_manager.common.api.apiserver_internal import StorageVersion
from controller_manager.common.api.certificates import ClusterTrustBundle
from controller_manager.common.api.coordination import Lease
from controller_manager.common.api.storage_migration import StorageVersionMigration, comparable, is_newer
from controllers.storage_version_gc import is_identity, remaining, servers_of
from controllers.storage_version_migrator import What, decide, ended, outcome
from controllers.trust_bundle_publisher import SIGNER, name_of
from controllers.trust_bundle_publisher import decide as decide_bundles

NOW = "2026-01-01T00:00:00Z"


def migration(name: str, *true: str, at: int = 0, version: str = "") -> StorageVersionMigration:
    conditions = [{"type": kind, "status": "True"} for kind in true]
    created = f"2026-01-01T00:00:{at:02}Z"
    tree: Any = {"metadata": {"name": name, "uid": name, "creationTimestamp": created}}
    status = {"conditions": conditions, "resourceVersion": version}
    return StorageVersionMigration.decode(encoded(tree | {"status": status}))


def encoded(tree: Any) -> bytes:
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("migrations", "what", "name"),
    [
        ((), What.NOTHING, ""),
        ((migration("a", "Succeeded"),), What.NOTHING, ""),
        ((migration("a"),), What.BEGIN, "a"),
        ((migration("b", at=1), migration("a", at=2)), What.BEGIN, "b"),
        ((migration("b"), migration("a")), What.BEGIN, "a"),
        ((migration("a"), migration("b", "Running", at=9)), What.BOUND, "b"),
        ((migration("a"), migration("b", "Running", version="7")), What.WRITE, "b"),
        ((migration("a"), migration("b", "Running", "Succeeded", version="7")), What.FINISH, "b"),
        ((migration("a", "Running"), migration("b", "Running", "Failed")), What.FINISH, "b"),
        ((migration("a", "Failed"), migration("b")), What.BEGIN, "b"),
    ],
)
def test_one_migration_per_resource_runs(migrations: Any, what: What, name: str) -> None:
    step = decide(migrations)
    assert (step.what, step.migration.metadata.name if step.migration else "") == (what, name)


def test_ended_migration_is_not_started_again() -> None:
    after = ended(migration("a", "Running", "Succeeded"), NOW)
    assert {one.type: one.status for one in after.status.conditions} == {"Running": "False", "Succeeded": "True"}
    assert decide([after]).what is What.NOTHING


@pytest.mark.parametrize(
    ("generation", "succeeded", "stored", "reason"),
    [
        (3, True, ("v2",), "MigrationSucceeded"),
        (4, True, ("v1", "v2"), "MigrationSucceeded"),
        (3, False, ("v1", "v2"), "MigrationFailed"),
    ],
)
def test_stored_versions_shrink_after_full_migration_only(
    generation: int, succeeded: bool, stored: tuple[str, ...], reason: str
) -> None:
    tree = {
        "metadata": {"name": "d", "generation": generation},
        "spec": {"versions": [{"name": "v1"}, {"name": "v2", "storage": True}]},
        "status": {
            "storedVersions": ["v1", "v2"],
            "conditions": [{"type": "StorageMigrating", "status": "True", "observedGeneration": 3}],
        },
    }
    found = outcome(CustomResourceDefinition.decode(encoded(tree)), succeeded)
    assert (found.stored_versions, found.reason) == (stored, reason)


@pytest.mark.parametrize(
    ("version", "other", "newer"),
    [("9", "10", False), ("10", "9", True), ("10", "10", False), ("9" * 30, "1" + "0" * 29, True)],
)
def test_resource_versions_compare_as_numbers(version: str, other: str, newer: bool) -> None:
    assert comparable(version)
    assert is_newer(version, other) is newer


@pytest.mark.parametrize("version", ["", "0", "07", "x", "1.0", "-1", "\uff11"])
def test_malformed_resource_version_is_not_comparable(version: str) -> None:
    assert not comparable(version)


def version_of(*servers: tuple[str, str]) -> StorageVersion:
    entries = [{"apiServerID": name, "encodingVersion": encoding} for name, encoding in servers]
    return StorageVersion.decode(encoded({"metadata": {"name": "g.foos"}, "status": {"storageVersions": entries}}))


def test_version_status_after_removed_servers() -> None:
    left = remaining(version_of(("a", "v1"), ("b", "v2"), ("c", "v1")), {"b"}, NOW)
    assert left is not None
    assert (servers_of(left), left.status.common_encoding_version) == (("a", "c"), "v1")
    (condition,) = left.status.conditions
    assert (condition.type, condition.status) == ("AllEncodingVersionsEqual", "True")
    assert remaining(version_of(("a", "v1")), {"a"}, NOW) is None


@pytest.mark.parametrize(
    ("labels", "is_one"),
    [({}, False), ({"apiserver.kubernetes.io/identity": "kube-apiserver"}, True),
     ({"apiserver.kubernetes.io/identity": "other"}, False)],
)  # fmt: skip
def test_identity_lease_is_recognized_by_label(labels: dict[str, str], is_one: bool) -> None:
    assert is_identity(Lease.decode(encoded({"metadata": {"name": "a", "labels": labels}}))) is is_one
    assert not is_identity(None)


def bundle(name: str, text: str) -> ClusterTrustBundle:
    return ClusterTrustBundle.decode(
        encoded({"metadata": {"name": name, "uid": name}, "spec": {"signerName": SIGNER, "trustBundle": text}})
    )


RIGHT = name_of("CA")


@pytest.mark.parametrize(
    ("authorities", "bundles", "writes", "deletes"),
    [
        ("", (bundle("old", "CA"),), False, ()),
        ("CA", (), True, ()),
        ("CA", (bundle(RIGHT, "CA"),), False, ()),
        ("CA", (bundle(RIGHT, "other"),), True, ()),
        ("CA", (bundle("old", "x"), bundle(RIGHT, "CA"), bundle("a", "CA")), False, ("a", "old")),
        ("CA", (bundle("old", "x"),), True, ("old",)),
    ],
)
def test_signer_has_exactly_one_bundle(authorities: str, bundles: Any, writes: bool, deletes: tuple[str, ...]) -> None:
    found = decide_bundles(authorities, bundles)
    assert (found.write is not None, found.delete) == (writes, deletes)
    if found.write is not None:
        assert (found.write.metadata.name, found.write.spec.trust_bundle) == (RIGHT, "CA")


def test_bundle_name_contains_content_hash() -> None:
    assert RIGHT == "kubernetes.io:kube-apiserver-serving:4b650e5c4785025dee7bd65e"
