"""The smallest fitting volume is matched to a claim, and none is matched twice (Hypothesis)."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller_manager.common.api.storage import PersistentVolume, PersistentVolumeClaim
from controller_manager.framework import Change
from controllers.persistent_volume_binder.changes import bound_volume
from controllers.persistent_volume_binder.volumes import VolumeIndex, is_bound_to, mismatch
from controllers.shared.claims import size_of
from tests.scenarios.storage import claim, volume

ONCE, MANY, READ = "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"


def available(name: str, size: str = "1Gi", *, phase: str = "Available", version: int = 1, **given_: Any) -> Any:
    made = volume(name, size, **given_)
    meta = replace(made.metadata, uid=f"uid of {name}", resource_version=str(version))
    return replace(made, metadata=meta, status=replace(made.status, phase=phase))


def index_of(volumes: Iterable[PersistentVolume]) -> VolumeIndex:
    index = VolumeIndex()
    for one in volumes:
        index.note(Change(None, one))
    return index


def name_of(found: PersistentVolume | None) -> str | None:
    return None if found is None else found.metadata.name


RESERVED = {"claimRef": {"namespace": "default", "name": "c"}}
TAKEN = {"claimRef": {"namespace": "default", "name": "c", "uid": "other"}}
BOTH = {"accessModes": [ONCE, MANY]}


@pytest.mark.parametrize(
    ("volumes", "asked", "found"),
    [
        ([], {}, None),
        ([available("a", "3Gi"), available("b", "2Gi"), available("c", "2Gi")], {}, "b"),
        ([available("a", "1023Mi")], {}, None),
        ([available("a", "1024Mi")], {}, "a"),
        ([available("a", **BOTH), available("b", "9Gi")], {}, "b"),
        ([available("a", **BOTH), available("b", "9Gi")], {"accessModes": [MANY]}, "a"),
        ([available("a")], {"accessModes": [READ]}, None),
        ([available("a")], {"storageClassName": "x"}, None),
        ([available("a", storageClassName="x")], {"storageClassName": "x"}, "a"),
        ([available("a", storageClassName="x")], {}, None),
        ([available("a")], {"volumeMode": "Block"}, None),
        ([available("a", volumeMode="Block")], {"volumeMode": "Block"}, "a"),
        ([available("a", volumeAttributesClassName="x")], {}, None),
        ([available("a", volumeAttributesClassName="x")], {"volumeAttributesClassName": "x"}, "a"),
        ([available("a", phase="Released")], {}, None),
        ([available("a", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], {}, None),
        ([available("a"), available("b", meta={"labels": {"k": "v"}})], {"selector": {"matchLabels": {"k": "v"}}}, "b"),
        ([available("a")], {"selector": {"matchLabels": {"k": "v"}}}, None),
        ([available("a"), available("b", "9Gi", **RESERVED)], {}, "b"),
        ([available("a"), available("b", "512Mi", **RESERVED)], {}, "a"),
        ([available("a"), available("b", "9Gi", **RESERVED, **BOTH)], {}, "a"),
        ([available("b", storageClassName="x", phase="Pending", **RESERVED)], {}, "b"),
        ([available("b", volumeMode="Block", **RESERVED)], {}, None),
        ([available("b", **TAKEN)], {}, None),
    ],
)
def test_smallest_fitting_volume_matches(volumes: list[Any], asked: dict[str, Any], found: str | None) -> None:
    assert name_of(index_of(volumes).match(claim(meta={"uid": "u"}, **asked))) == found


def test_delayed_binding_matches_prebound_volumes_only() -> None:
    index = index_of([available("a"), available("b", "9Gi", **RESERVED)])
    assert name_of(index.match(claim(meta={"uid": "u"}), bound_only=True)) == "b"
    assert index.match(claim("other"), bound_only=True) is None


def test_reserved_volume_is_not_matched_again() -> None:
    index = index_of([available("a"), available("b", "2Gi")])
    index.reserve("a")
    assert name_of(index.match(claim())) == "b"
    index.release("a")
    assert name_of(index.match(claim())) == "a"


def test_own_write_precedes_older_watch_event() -> None:
    first, asked = available("a"), claim(meta={"uid": "u"})
    index = index_of([first])
    index.renew(available("a", version=3, **TAKEN))
    assert index.match(asked) is None
    index.note(Change(first, available("a", version=2)))
    assert index.match(asked) is None
    index.note(Change(first, None))
    index.renew(available("a", version=4))
    assert (index.get("a"), index.match(asked)) == (None, None)


def test_removed_volumes_leave_no_index_entries() -> None:
    volumes = [available("a"), available("b", **RESERVED), available("c", storageClassName="x")]
    index = index_of(volumes)
    for one in volumes:
        index.note(Change(one, None))
    assert list(index) == []
    assert vars(index)["_free"] == {}
    assert dict(vars(index)["_claimed"]) == {}


sizes = st.integers(1, 5).map(lambda number: f"{number}Gi")
modes = st.lists(st.sampled_from([ONCE, MANY, READ]), min_size=1, max_size=3, unique=True)
classes = st.sampled_from(["", "x"])


@st.composite
def volumes_with_claims(draw: Any) -> tuple[list[PersistentVolume], list[PersistentVolumeClaim]]:
    volumes = [
        available(f"v{number}", draw(sizes), accessModes=draw(modes), storageClassName=draw(classes))
        for number in range(draw(st.integers(0, 6)))
    ]
    claims = [
        claim(
            f"c{number}",
            draw(sizes),
            meta={"uid": f"u{number}"},
            accessModes=draw(modes),
            storageClassName=draw(classes),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    return volumes, claims


def fits(one: PersistentVolume, asked: PersistentVolumeClaim) -> bool:
    return one.spec.claim_ref is None and not mismatch(one, asked)


@given(volumes_with_claims())
def test_volumes_are_matched_smallest_first_and_once(
    volumes_and_claims: tuple[list[PersistentVolume], list[PersistentVolumeClaim]],
) -> None:
    volumes, claims = volumes_and_claims
    index = index_of(volumes)
    given_to: dict[str, str] = {}
    for asked in claims:
        there = [one for one in index if fits(one, asked)]
        found = index.match(asked)
        if found is None:
            assert there == []
            continue
        assert fits(found, asked)
        fewest = min(len(one.spec.access_modes) for one in there)
        assert len(found.spec.access_modes) == fewest
        same = [one for one in there if set(one.spec.access_modes) == set(found.spec.access_modes)]
        assert size_of(found.spec.capacity) == min(size_of(one.spec.capacity) for one in same)
        assert found.metadata.name not in given_to
        given_to[found.metadata.name] = asked.metadata.name
        meta = replace(found.metadata, resource_version="2")
        index.renew(replace(bound_volume(found, asked), metadata=meta))
        again = index.match(asked)
        assert again is not None
        assert is_bound_to(again, asked)


def test_matching_1000_claims_takes_linear_time() -> None:
    looked_at = 0
    index = index_of(available(f"v{number:04}", f"{1 + number % 10}Gi") for number in range(1000))
    volumes = vars(index)["_volumes"]

    class Looked(dict[str, PersistentVolume]):
        def __getitem__(self, name: str) -> PersistentVolume:
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(name)

    vars(index)["_volumes"] = Looked(volumes)
    for number in range(1000):
        asked = claim(f"c{number:04}", f"{1 + number % 10}Gi", meta={"uid": f"u{number}"})
        found = index.match(asked)
        assert found is not None
        index.renew(replace(bound_volume(found, asked), metadata=replace(found.metadata, resource_version="2")))
    assert looked_at < 5000
