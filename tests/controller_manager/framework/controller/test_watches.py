"""Which keys a change wakes, and the cause as text."""

from collections.abc import Iterable
from typing import Any

import pytest

from controller_manager.common.api.core import ENDPOINTS, NAMESPACES, PODS, SERVICES, Pod
from controller_manager.common.api.model import ObjectMeta, OwnerReference
from controller_manager.common.api.resource import Key
from controller_manager.common.base.runtime import Runtime
from controller_manager.framework import Change, For, Informers, Mapped, Owned
from controller_manager.framework.controller.watches import cause_of, keys_of


def owned_by(name: str, kind: str = "Service", api_version: str = "v1", controller: bool = True) -> Pod:
    owner = OwnerReference(api_version=api_version, kind=kind, name=name, uid="u", controller=controller)
    return Pod(metadata=ObjectMeta(namespace="a", name="x", owner_references=(owner,)))


POD = Pod(metadata=ObjectMeta(namespace="a", name="x"))


@pytest.fixture
def informers(api: Any) -> Informers:
    return Informers(api.client(), Runtime("test"))


def woken(watch: Any, informers: Informers, before: Pod | None, after: Pod | None) -> list[Key]:
    return list(keys_of(watch, informers, Change(before, after)))


def test_for_watch_wakes_the_object(informers: Informers) -> None:
    assert woken(For(PODS), informers, None, POD) == [Key("a", "x")]
    assert woken(For(PODS), informers, POD, None) == [Key("a", "x")]


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (None, POD, []),
        (None, owned_by("s"), ["s"]),
        (owned_by("s"), owned_by("s"), ["s"]),
        (owned_by("s"), owned_by("t"), ["s", "t"]),
        (owned_by("s"), None, ["s"]),
        (None, owned_by("s", controller=False), []),
        (None, owned_by("s", kind="ReplicaSet"), []),
        (None, owned_by("s", api_version="serving.example.com/v1"), []),
    ],
)
def test_owned_watch_wakes_old_and_new_controller(
    informers: Informers, before: Pod | None, after: Pod | None, names: list[str]
) -> None:
    assert woken(Owned(PODS, SERVICES), informers, before, after) == [Key("a", name) for name in names]


def test_cluster_scoped_owner_has_key_without_namespace(informers: Informers) -> None:
    assert woken(Owned(PODS, NAMESPACES), informers, None, owned_by("n", kind="Namespace")) == [Key("", "n")]


def test_mapped_watch_wakes_returned_keys(informers: Informers) -> None:
    def keys(given: Informers, change: Change[Pod]) -> Iterable[Key]:
        assert given is informers
        yield Key("b", change.object.metadata.name)

    assert woken(Mapped(PODS, keys), informers, POD, POD) == [Key("b", "x")]
    assert woken(Mapped(PODS), informers, POD, POD) == []


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (Change(None, POD, initial=True), "endpoints a/x listed"),
        (Change(None, POD), "endpoints a/x created"),
        (Change(POD, POD), "endpoints a/x updated"),
        (Change(POD, None), "endpoints a/x deleted"),
    ],
)
def test_cause_of_change_as_text(change: Change[Pod], cause: str) -> None:
    assert cause_of(ENDPOINTS, change) == cause
