"""Custom resource definitions at run time: served versions, names and conditions, and deletion."""

import asyncio
from typing import Any

import pytest

from apiserver_stub.process.storage_factory import embedded_storage
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.tasks import Tasks
from tests.apiserver_stub.memory_backend import MemoryBackend

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
ROOT = "/apis/example.org/v1"
THINGS = f"{ROOT}/namespaces/default/things"

pytestmark = pytest.mark.virtual


def definition(plural: str = "things", kind: str = "Thing", group: str = "example.org", **more: Any) -> Tree:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "kind": kind, **more}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }  # fmt: skip


def thing(name: str, **metadata: Any) -> Tree:
    return {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": name, **metadata}, "spec": {"a": "x"}}


def conditions(found: Tree) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in found["status"]["conditions"] or ()}


async def make(admin: Any, **changes: Any) -> Tree:
    """Create a definition; return it after a short wait."""
    manifest = definition(**changes)
    assert (await admin("POST", DEFINITIONS, manifest))[0] == 201
    await asyncio.sleep(0.1)
    return await admin.definition(manifest["metadata"]["name"])


async def test_definition_is_served_within_100_ms(admin: Any) -> None:
    assert (await admin("GET", THINGS))[0] == 404
    found = await make(admin, shortNames=["th"])
    assert conditions(found) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList", "shortNames": ["th"]}
    assert found["status"]["acceptedNames"] == names
    assert (await admin("POST", THINGS, thing("one")))[0] == 201
    _, body = await admin("GET", ROOT)
    assert [(one["name"], one["shortNames"]) for one in body["resources"]] == [("things", ["th"])]
    assert [group["name"] for group in (await admin("GET", "/apis"))[1]["groups"]].count("example.org") == 1


@pytest.mark.parametrize("columns", [0, 2000])
async def test_resource_is_served_once_established(admin: Any, columns: int) -> None:
    """This also holds for a definition so large that its resources are created in the thread."""
    manifest = definition()
    manifest["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": f"c{number}", "type": "string", "jsonPath": ".spec.a"} for number in range(columns)
    ]
    assert (await admin("POST", DEFINITIONS, manifest))[0] == 201
    for _ in range(50):
        found = conditions(await admin.definition("things.example.org"))
        if "Established" in found:
            break
        await asyncio.sleep(0)
    assert found["Established"] == ("True", "InitialNamesAccepted")
    assert (await admin("POST", THINGS, thing("one")))[0] == 201


async def test_conflicting_names_wait_until_they_are_free(admin: Any) -> None:
    await make(admin, shortNames=["th"])
    names = {"plural": "others", "singular": "other", "kind": "Thing", "listKind": "OtherList"}
    found = await make(admin, **names, shortNames=["th", "ot"])
    assert conditions(found) == {
        "NamesAccepted": ("False", "KindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert found["status"]["acceptedNames"] == {**names, "kind": ""}
    assert (await admin("GET", f"{ROOT}/namespaces/default/others"))[0] == 404
    await admin("DELETE", f"{DEFINITIONS}/things.example.org")
    await asyncio.sleep(2)
    found = await admin.definition("others.example.org")
    assert conditions(found)["Established"] == ("True", "InitialNamesAccepted")
    assert (await admin("GET", f"{ROOT}/namespaces/default/others"))[0] == 200


async def test_same_names_in_other_groups_are_accepted(admin: Any) -> None:
    await make(admin)
    assert conditions(await make(admin, group="example.com"))["NamesAccepted"] == ("True", "NoConflicts")


async def test_established_definition_keeps_its_names(admin: Any) -> None:
    await make(admin)
    await make(admin, plural="others", kind="Other", shortNames=["ot"])
    patch = {"spec": {"names": {"shortNames": ["ot"]}}}
    assert (await admin("PATCH", f"{DEFINITIONS}/things.example.org", patch, MERGE))[0] == 200
    await asyncio.sleep(0.1)
    found = await admin.definition("things.example.org")
    assert conditions(found) == {
        "NamesAccepted": ("False", "ShortNamesConflict"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert "shortNames" not in found["status"]["acceptedNames"]
    assert (await admin("GET", THINGS))[0] == 200


async def test_unreadable_ca_bundle_is_reported_until_fixed(admin: Any) -> None:
    manifest = definition()
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://h/", "caBundle": "bm8="}}
    manifest["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    assert (await admin("POST", DEFINITIONS, manifest))[0] == 201
    await asyncio.sleep(0.1)
    found = await admin.definition("things.example.org")
    assert conditions(found)["Established"] == ("False", "InvalidCABundle")
    assert (await admin("GET", THINGS))[0] == 404
    patch = {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": None}}}}}
    assert (await admin("PATCH", f"{DEFINITIONS}/things.example.org", patch, MERGE))[0] == 200
    await asyncio.sleep(0.1)
    found = await admin.definition("things.example.org")
    assert conditions(found)["Established"] == ("True", "InitialNamesAccepted")


async def test_version_can_be_added_and_removed(admin: Any) -> None:
    found = await make(admin)
    version = {**found["spec"]["versions"][0], "name": "v2", "storage": False}
    patch: Tree = {"spec": {"versions": [*found["spec"]["versions"], version]}}
    assert (await admin("PATCH", f"{DEFINITIONS}/things.example.org", patch, MERGE))[0] == 200
    await asyncio.sleep(0.1)
    assert (await admin("POST", THINGS, thing("one")))[0] == 201
    code, one = await admin("GET", "/apis/example.org/v2/namespaces/default/things/one")
    assert (code, one["apiVersion"]) == (200, "example.org/v2")
    version["served"] = False
    assert (await admin("PATCH", f"{DEFINITIONS}/things.example.org", patch, MERGE))[0] == 200
    await asyncio.sleep(0.1)
    assert (await admin("GET", "/apis/example.org/v2/namespaces/default/things/one"))[0] == 404
    assert (await admin("GET", f"{THINGS}/one"))[0] == 200


class TestEnd:
    async def test_deleting_definition_deletes_all_objects(self, admin: Any) -> None:
        await make(admin)
        for name in "abc":
            assert (await admin("POST", THINGS, thing(name)))[0] == 201
        code, found = await admin("DELETE", f"{DEFINITIONS}/things.example.org")
        assert (code, found["metadata"]["finalizers"]) == (200, ["customresourcecleanup.apiextensions.k8s.io"])
        assert conditions(found)["Terminating"] == ("True", "InstanceDeletionPending")
        assert found["metadata"]["generation"] == 1
        await asyncio.sleep(2)
        assert (await admin("GET", f"{DEFINITIONS}/things.example.org"))[0] == 404
        assert (await admin("GET", THINGS))[0] == 404
        assert (await admin("GET", ROOT))[0] == 404
        await make(admin)
        code, listed = await admin("GET", THINGS)
        assert (code, listed["items"]) == (200, [])

    async def test_watch_reports_deleted_objects(self, admin: Any) -> None:
        await make(admin)
        assert (await admin("POST", THINGS, thing("a")))[0] == 201
        async with asyncio.timeout(10), Tasks() as tasks:
            watch = tasks.start(admin.watch_events(THINGS), name="watch")
            await asyncio.sleep(0.1)
            assert (await admin("DELETE", f"{DEFINITIONS}/things.example.org"))[0] == 200
            assert await watch == [("ADDED", "a"), ("DELETED", "a")]

    async def test_object_with_finalizer_blocks_definition(self, admin: Any) -> None:
        await make(admin)
        assert (await admin("POST", THINGS, thing("held", finalizers=["example.org/hold"])))[0] == 201
        await admin("DELETE", f"{DEFINITIONS}/things.example.org")
        code, refusal = await admin("POST", THINGS, thing("new"))
        assert (code, refusal["reason"]) == (403, "Forbidden")
        _, body = await admin("GET", ROOT)
        assert body["resources"][0]["verbs"] == ["delete", "deletecollection", "get", "list", "watch"]
        await asyncio.sleep(5)
        found = await admin.definition("things.example.org")
        assert conditions(found)["Terminating"] == ("True", "InstanceDeletionInProgress")
        assert (await admin("GET", f"{THINGS}/held"))[1]["metadata"]["deletionTimestamp"]
        await asyncio.sleep(70)
        found = await admin.definition("things.example.org")
        assert conditions(found)["Terminating"] == ("True", "InstanceDeletionCheck")
        patch = {"metadata": {"finalizers": None}}
        assert (await admin("PATCH", f"{THINGS}/held", patch, MERGE))[0] == 200
        await asyncio.sleep(2)
        assert (await admin("GET", f"{DEFINITIONS}/things.example.org"))[0] == 404

    async def test_unserved_definition_is_deleted_at_once(self, admin: Any) -> None:
        await make(admin)
        await make(admin, plural="others", kind="Thing")
        assert (await admin("DELETE", f"{DEFINITIONS}/others.example.org"))[0] == 200
        await asyncio.sleep(0.1)
        assert (await admin("GET", f"{DEFINITIONS}/others.example.org"))[0] == 404

    async def test_objects_are_deleted_if_conversion_fails(self, admin: Any) -> None:
        found = await make(admin)
        assert (await admin("POST", THINGS, thing("one")))[0] == 201
        first = {**found["spec"]["versions"][0], "storage": False}
        second = {**first, "name": "v2", "storage": True}
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}}
        conversion = {"strategy": "Webhook", "webhook": webhook}
        patch = {"spec": {"versions": [first, second], "conversion": conversion}}
        code, found = await admin("PATCH", f"{DEFINITIONS}/things.example.org", patch, MERGE)
        assert (code, found["status"]["storedVersions"]) == (200, ["v1", "v2"])
        assert (await admin("DELETE", f"{DEFINITIONS}/things.example.org"))[0] == 200
        await asyncio.sleep(2)
        assert (await admin("GET", f"{DEFINITIONS}/things.example.org"))[0] == 404
        assert admin.api.store.count("things.example.org") == 0

    async def test_many_definitions_are_deleted_concurrently(self, admin: Any) -> None:
        for number in range(20):
            assert (await admin("POST", DEFINITIONS, definition(f"things{number}", f"Thing{number}")))[0] == 201
        await asyncio.sleep(0.2)
        for number in range(20):
            assert (await admin("DELETE", f"{DEFINITIONS}/things{number}.example.org"))[0] == 200
        await asyncio.sleep(2)
        assert (await admin("GET", DEFINITIONS))[1]["items"] == []
        assert (await admin("GET", ROOT))[0] == 404

    async def test_other_finalizers_block_definition(self, admin: Any) -> None:
        found = await make(admin)
        patch = {"metadata": {"finalizers": ["example.org/hold"]}}
        assert (await admin("PATCH", f"{DEFINITIONS}/things.example.org", patch, MERGE))[0] == 200
        await admin("DELETE", f"{DEFINITIONS}/things.example.org")
        await asyncio.sleep(2)
        found = await admin.definition("things.example.org")
        assert found["metadata"]["finalizers"] == ["example.org/hold"]
        assert conditions(found)["Terminating"] == ("False", "InstanceDeletionCompleted")


async def test_requests_see_either_old_or_new_schema(admin: Any) -> None:
    found = await make(admin)
    versions = found["spec"]["versions"]

    async def ask(number: int) -> tuple[int, Any]:
        await asyncio.sleep(number / 1000)
        return await admin("POST", THINGS, {**thing(f"n{number}"), "spec": {"a": "x", "b": "y"}})

    async def change() -> None:
        await asyncio.sleep(0.02)
        versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"] = {"type": "string"}
        patch = {"spec": {"versions": versions}}
        assert (await admin("PATCH", f"{DEFINITIONS}/things.example.org", patch, MERGE))[0] == 200

    *answers, _ = await asyncio.gather(*map(ask, range(50)), change())
    assert {code for code, _ in answers} == {201}
    kept = ["b" in made["spec"] for _, made in answers]
    assert kept == sorted(kept)
    assert set(kept) == {False, True}


async def test_definitions_are_served_after_start(serve: Any) -> None:
    log = MemoryBackend()
    async with serve(embedded_storage(log)) as admin:
        await make(admin)
        assert (await admin("POST", THINGS, thing("one")))[0] == 201
    async with serve(embedded_storage(log), settled=False) as admin:
        assert (await admin("GET", f"{THINGS}/one"))[0] == 200


async def test_deletion_continues_after_restart(serve: Any) -> None:
    log = MemoryBackend()
    async with serve(embedded_storage(log)) as admin:
        await make(admin)
        assert (await admin("POST", THINGS, thing("one")))[0] == 201
        await admin("DELETE", f"{DEFINITIONS}/things.example.org")
    async with serve(embedded_storage(log)) as admin:
        await asyncio.sleep(2)
        assert (await admin("GET", f"{DEFINITIONS}/things.example.org"))[0] == 404


async def test_two_servers_serve_the_same_definitions(serve: Any) -> None:
    storage = embedded_storage(MemoryBackend())
    async with serve(storage) as one, serve(storage) as other:
        await make(one)
        assert (await other("POST", THINGS, thing("made")))[0] == 201
        assert (await one("GET", f"{THINGS}/made"))[0] == 200
        await other("DELETE", f"{DEFINITIONS}/things.example.org")
        await asyncio.sleep(2)
        assert (await one("GET", f"{DEFINITIONS}/things.example.org"))[0] == 404
        assert (await one("GET", THINGS))[0] == (await other("GET", THINGS))[0] == 404
