"""The controller of an object, and what an owner keeps, adopts and releases.

The expected server responses are those of kube-apiserver 1.36 to the same patches.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api import errors
from controller_manager.common.api.core import CONFIG_MAPS, PODS, ConfigMap, Pod
from controller_manager.common.api.model import ObjectMeta, OwnerReference, PartialObject
from controller_manager.common.api.wire import Request, Response
from controller_manager.framework import (
    Client,
    ControllerRefManager,
    Key,
    LabelSelector,
    controller_of,
    controller_ref,
    recheck_owner,
)
from controller_manager.framework.controller.references import Claim, claim_of
from controller_manager.testing import Cluster, builders
from controller_manager.testing.faults import FaultyNetwork

NOW = "2026-01-01T00:00:00Z"
US = ObjectMeta(namespace="ns", name="us", uid="us")


def reference(uid: str, controller: bool | None = True) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="ConfigMap", name=uid, uid=uid, controller=controller)


def obj(*owners: OwnerReference, namespace: str = "ns", deleted: bool = False) -> PartialObject:
    deletion = NOW if deleted else None
    return PartialObject(
        metadata=ObjectMeta(namespace=namespace, name="o", owner_references=owners, deletion_timestamp=deletion)
    )


def test_controller_is_the_owner_marked_as_controller() -> None:
    assert controller_of(obj()) is None
    assert controller_of(obj(reference("a", None), reference("b", False))) is None
    assert controller_of(obj(reference("a", None), reference("b"))) == reference("b")


def test_controller_ref_has_kind_and_blocks_owner_deletion() -> None:
    made = controller_ref(CONFIG_MAPS, ConfigMap(metadata=US))
    assert made == replace(reference("us"), block_owner_deletion=True)


OURS, OTHERS = reference("us"), reference("other")


@pytest.mark.parametrize("going", [False, True], ids=["owner is there", "owner is being deleted"])
@pytest.mark.parametrize("deleted", [False, True], ids=["object is there", "object is being deleted"])
@pytest.mark.parametrize(
    ("owners", "matches", "there", "owner_going", "object_going"),
    [
        ((OURS,), True, Claim.KEEP, Claim.KEEP, Claim.KEEP),
        ((OURS,), False, Claim.RELEASE, Claim.IGNORE, Claim.RELEASE),
        ((OTHERS,), True, Claim.IGNORE, Claim.IGNORE, Claim.IGNORE),
        ((OTHERS,), False, Claim.IGNORE, Claim.IGNORE, Claim.IGNORE),
        ((), True, Claim.ADOPT, Claim.IGNORE, Claim.IGNORE),
        ((), False, Claim.IGNORE, Claim.IGNORE, Claim.IGNORE),
        # Owners that are not controllers do not count.
        ((reference("us", None),), True, Claim.ADOPT, Claim.IGNORE, Claim.IGNORE),
        ((reference("other", False),), True, Claim.ADOPT, Claim.IGNORE, Claim.IGNORE),
        ((reference("other", False), OURS), True, Claim.KEEP, Claim.KEEP, Claim.KEEP),
    ],
)
def test_claim_by_owners_labels_and_deletion(
    owners: tuple[OwnerReference, ...],
    matches: bool,
    there: Claim,
    owner_going: Claim,
    object_going: Claim,
    going: bool,
    deleted: bool,
) -> None:
    owner = replace(US, deletion_timestamp=NOW if going else None)
    expected = owner_going if going else object_going if deleted else there
    assert claim_of(owner, obj(*owners, deleted=deleted), matches=matches) is expected


@pytest.mark.parametrize(("ours", "claim"), [("ns", Claim.ADOPT), ("", Claim.ADOPT), ("another", Claim.IGNORE)])
def test_namespaced_owner_adopts_within_its_namespace(ours: str, claim: Claim) -> None:
    assert claim_of(replace(US, namespace=ours), obj(), matches=True) is claim


def become(it: PartialObject, uid: str, claim: Claim) -> PartialObject:
    """Return the object after the claim of the owner with this uid."""
    owners = it.metadata.owner_references
    if claim is Claim.ADOPT:
        owners = (*(one for one in owners if one.uid != uid), reference(uid))
    elif claim is Claim.RELEASE:
        owners = tuple(one for one in owners if one.uid != uid)
    return replace(it, metadata=replace(it.metadata, owner_references=owners))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=12))
def test_repeated_claims_are_idempotent_with_one_controller(
    turns: list[tuple[str, bool, bool]],
) -> None:
    it = obj()
    for uid, matches, going in turns:
        owner = ObjectMeta(namespace="ns", name=uid, uid=uid, deletion_timestamp=NOW if going else None)
        it = become(it, uid, claim_of(owner, it, matches=matches))
        assert claim_of(owner, it, matches=matches) in (Claim.KEEP, Claim.IGNORE)
        assert sum(bool(one.controller) for one in it.metadata.owner_references) <= 1


# Claims on a server, by a ConfigMap that owns pods.
MATCHES = LabelSelector.parse("app=web")


class Scenario:
    """A cluster with an owner, and the requests to its server."""

    def __init__(self, cluster: Cluster, owner: ConfigMap) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.owner = owner

    async def pod(self, name: str, app: str = "web", *owners: OwnerReference) -> Pod:
        return await self.client.create(PODS, builders.pod(name, labels={"app": app}, ownerReferences=plain(owners)))

    async def claim(self, *pods: Pod) -> list[str]:
        manager = ControllerRefManager(self.client, CONFIG_MAPS, self.owner)
        claimed = await manager.claim(PODS, pods, lambda pod: MATCHES.matches(pod.metadata.labels))
        return [pod.metadata.name for pod in claimed]

    async def owners(self, pod: str) -> list[tuple[str, bool]]:
        found = await self.client.get(PODS, Key("default", pod))
        return [(one.uid, bool(one.controller)) for one in found.metadata.owner_references]


def plain(owners: tuple[OwnerReference, ...]) -> list[Mapping[str, Any]]:
    return [
        {"apiVersion": o.api_version, "kind": o.kind, "name": o.name, "uid": o.uid, "controller": bool(o.controller)}
        for o in owners
    ]


@asynccontextmanager
async def scenario() -> AsyncIterator[Scenario]:
    async with Cluster() as cluster:
        meta = ObjectMeta(namespace="default", name="owner")
        yield Scenario(cluster, await cluster.client.create(CONFIG_MAPS, ConfigMap(metadata=meta)))


@pytest.mark.virtual
async def test_orphans_are_adopted_and_mismatches_released() -> None:
    async with scenario() as it:
        ours, other = controller_ref(CONFIG_MAPS, it.owner), reference("other")
        pods = [
            await it.pod("kept", "web", ours),
            await it.pod("stray", "db", reference("beside", False), ours),
            await it.pod("orphan", "web", reference("beside", False)),
            await it.pod("foreign", "web", other),
            await it.pod("unrelated", "db"),
        ]
        uid = it.owner.metadata.uid
        assert await it.claim(*pods) == ["kept", "orphan"]
        assert await it.owners("kept") == [(uid, True)]
        assert await it.owners("stray") == [("beside", False)]
        assert sorted(await it.owners("orphan")) == sorted([("beside", False), (uid, True)])
        assert await it.owners("foreign") == [("other", True)]
        assert await it.owners("unrelated") == []


@pytest.mark.virtual
async def test_adoption_preserves_concurrent_changes() -> None:
    async with scenario() as it:
        seen = await it.pod("orphan")
        await it.client.patch(PODS, Key("default", "orphan"), {"metadata": {"annotations": {"new": "one"}}})
        assert await it.claim(seen) == ["orphan"]
        found = await it.client.get(PODS, Key("default", "orphan"))
        assert (found.metadata.annotations or {}).get("new") == "one"


@pytest.mark.virtual
@pytest.mark.parametrize("how", ["gone", "recreated", "going"])
async def test_deleted_owner_with_stale_cache_adopts_nothing(how: str) -> None:
    async with scenario() as it:
        stray = await it.pod("stray", "db", controller_ref(CONFIG_MAPS, it.owner))
        orphan = await it.pod("orphan")
        if how == "going":
            held = replace(it.owner, metadata=replace(it.owner.metadata, finalizers=("example.com/held",)))
            await it.client.update(CONFIG_MAPS, held)
        await it.client.delete(CONFIG_MAPS, Key("default", "owner"))
        if how == "recreated":
            recreated = ConfigMap(metadata=ObjectMeta(namespace="default", name="owner"))
            await it.client.create(CONFIG_MAPS, recreated)
        with pytest.raises(errors.Conflict):
            await it.claim(stray, orphan)
        assert await it.owners("orphan") == []
        assert await it.owners("stray") == []


@pytest.mark.virtual
async def test_owner_is_rechecked_on_the_server() -> None:
    async with scenario() as it:
        seen, key = it.owner, Key("default", "owner")
        held = replace(seen, metadata=replace(seen.metadata, finalizers=("example.com/held",)))
        changed = await it.client.update(CONFIG_MAPS, held)
        assert await recheck_owner(it.client, CONFIG_MAPS, seen) == changed
        await it.client.delete(CONFIG_MAPS, key)
        with pytest.raises(errors.Conflict, match="being deleted"):
            await recheck_owner(it.client, CONFIG_MAPS, seen)
        await it.client.patch(CONFIG_MAPS, key, {"metadata": {"finalizers": None}})
        with pytest.raises(errors.Conflict, match="gone"):
            await recheck_owner(it.client, CONFIG_MAPS, seen)
        recreated = await it.client.create(
            CONFIG_MAPS, ConfigMap(metadata=ObjectMeta(namespace="default", name="owner"))
        )
        with pytest.raises(errors.Conflict, match="recreated"):
            await recheck_owner(it.client, CONFIG_MAPS, seen)
        assert await recheck_owner(it.client, CONFIG_MAPS, recreated) == recreated


@pytest.mark.virtual
async def test_deleted_or_recreated_objects_are_not_claimed() -> None:
    async with scenario() as it:
        ours = controller_ref(CONFIG_MAPS, it.owner)
        gone = [await it.pod("a"), await it.pod("b", "db", ours)]
        for pod in gone:
            await it.client.delete(PODS, Key("default", pod.metadata.name), grace=0)
        assert await it.claim(*gone) == []
        await it.pod("a")
        await it.pod("b", "db", ours)
        # The release concerns a deleted object; the adoption must be decided on the new one.
        assert await it.claim(gone[1]) == []
        with pytest.raises(errors.Conflict):
            await it.claim(gone[0])
        assert await it.owners("a") == []
        assert await it.owners("b") == [(it.owner.metadata.uid, True)]


@pytest.mark.virtual
async def test_lost_race_keeps_object_of_winner_and_claims_others() -> None:
    async with scenario() as it:
        contended, free = await it.pod("contended"), await it.pod("free")
        theirs = {"metadata": {"ownerReferences": plain((reference("other"),))}}
        await it.client.patch(PODS, Key("default", "contended"), theirs)
        with pytest.raises(errors.Conflict):
            await it.claim(contended, free)
        assert await it.owners("contended") == [("other", True)]
        assert await it.owners("free") == [(it.owner.metadata.uid, True)]


@pytest.mark.virtual
async def test_invalid_patch_is_raised_unchanged() -> None:
    def refuse(request: Request) -> Response | None:
        if request.method != "PATCH":
            return None
        wrong = errors.invalid("", "Pod", "web", (errors.Cause(field="spec.containers", message="needs one"),))
        return Response(422, {}, wrong.status().encode())

    async with scenario() as it:
        orphan, stray = await it.pod("orphan"), await it.pod("stray", "db", controller_ref(CONFIG_MAPS, it.owner))
        network = FaultyNetwork(lambda _: it.cluster.transport())
        network.intercept(refuse)
        it.client = Client(network.connect())
        for pod in (orphan, stray):
            with pytest.raises(errors.Invalid):
                await it.claim(pod)
