"""Server-side apply as a pure function: ownership, conflicts and removed fields."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_stub.kinds.registry import ResourceRegistry
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.patch import server_side_apply as apply
from apiserver_stub.patch.field_set import paths
from apiserver_stub.patch.managed_fields import (
    Comparison,
    FieldManager,
    ManagedFieldsEntry,
    Versions,
    fields_of,
    owned_part,
    updated,
)
from apiserver_stub.patch.server_side_apply import Applied, ApplyRequest
from apiserver_stub.patch.typed_objects import type_of
from controller_manager.common.api.errors import Conflict, UnknownError

Tree = dict[str, Any]

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


class ManagedObject:
    """One object and its managed fields, changed by applies and updates; no step may modify its input."""

    def __init__(self, things: Any) -> None:
        self.things = things
        self.kind = ResourceInfo("", "v1", "Thing", "things", "thing", True, frozenset(), "things", things.node)
        self.versions = Versions(ResourceRegistry([self.kind]), self.kind)
        self.tree: Tree | None = None
        self.entries: list[ManagedFieldsEntry] = []
        self.ticks = 0

    def apply(self, manager: str, config: Tree, *, force: bool = False) -> Tree:
        claim = ApplyRequest(config, self.kind, FieldManager(manager, "Apply", "v1"), force)
        given = copy.deepcopy((config, self.tree, self.entries))
        try:
            done = self._apply(claim)
        finally:
            assert (config, self.tree, self.entries) == given
        self.tree, self.entries = done.tree, done.entries
        return done.tree

    def _apply(self, claim: ApplyRequest) -> Applied:
        self.ticks += 1
        time = f"2026-01-01T00:00:{self.ticks:02}Z"
        if self.tree is None:
            return apply.create(claim, claim.config, time)
        return apply.change(claim, self.tree, self.entries, self.versions, time)

    def update(self, manager: str, spec: Tree) -> None:
        assert self.tree is not None
        self.ticks += 1
        new = {**self.tree, "spec": spec}
        seen = Comparison(self.versions, self.tree, new).changes_in
        author = FieldManager(manager, "Update", "v1")
        self.tree, self.entries = new, updated(self.entries, author, seen, f"2026-01-01T00:00:{self.ticks:02}Z")

    def disputes(self, manager: str, config: Tree) -> set[str]:
        """The conflicting fields of an apply, which is not made."""
        before = self.tree, self.entries
        try:
            self.apply(manager, config)
        except Conflict as refusal:
            return {cause.field for cause in refusal.details.causes} if refusal.details else set()
        self.tree, self.entries = before
        return set()

    @property
    def spec(self) -> Tree:
        found: Tree = (self.tree or {}).get("spec", {})
        return found

    def owners(self, *path: str) -> list[str]:
        return [e["manager"] for e in self.entries if path in set(paths(fields_of(e)))]


@pytest.fixture
def managed(things) -> ManagedObject:
    return ManagedObject(things)


def spec(**members: Any) -> Tree:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": members}


def test_new_object_is_owned_by_its_applier(managed: ManagedObject) -> None:
    managed.apply("one", spec(replicas=1))
    assert managed.entries == [
        FieldManager("one", "Apply", "v1").entry({"f:spec": {"f:replicas": {}}}, "2026-01-01T00:00:01Z")
    ]


def test_repeated_apply_changes_nothing(managed: ManagedObject) -> None:
    first = managed.apply("one", spec(replicas=1))
    entries = managed.entries
    assert (managed.apply("one", spec(replicas=1)), managed.entries) == (first, entries)


def test_changed_value_updates_the_time(managed: ManagedObject) -> None:
    managed.apply("one", spec(replicas=1))
    managed.apply("one", spec(replicas=2))
    assert [found["time"] for found in managed.entries] == ["2026-01-01T00:00:02Z"]


def test_equal_values_are_co_owned(managed: ManagedObject) -> None:
    managed.apply("one", spec(replicas=1))
    managed.apply("two", spec(replicas=1))
    assert sorted(managed.owners("f:spec", "f:replicas")) == ["one", "two"]


def test_conflict_lists_all_managers_and_fields(managed: ManagedObject) -> None:
    managed.apply("one", spec(replicas=1, settings={"a": "1"}))
    managed.update("two", {**managed.spec, "mode": "x"})
    with pytest.raises(Conflict) as refusal:
        managed.apply("three", spec(replicas=2, mode="y", settings={"a": "2", "b": "2"}))
    assert refusal.value.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .spec.replicas\n- .spec.settings.a\n'
        'conflicts with "two" using v1:\n- .spec.mode'
    )
    details = refusal.value.details
    assert details is not None
    assert [(c.reason, c.field, c.message) for c in details.causes] == [
        ("FieldManagerConflict", ".spec.replicas", 'conflict with "one"'),
        ("FieldManagerConflict", ".spec.settings.a", 'conflict with "one"'),
        ("FieldManagerConflict", ".spec.mode", 'conflict with "two" using v1'),
    ]


def test_number_of_reported_conflicts_is_limited(managed: ManagedObject) -> None:
    managed.apply("one", spec(settings={str(number): "1" for number in range(1000)}))
    with pytest.raises(Conflict, match=r"failed with 1000 conflicts(.|\n)*\nand 800 more$") as refusal:
        managed.apply("two", spec(settings={str(number): "2" for number in range(1000)}))
    details = refusal.value.details
    assert details is not None
    assert len(details.causes) == 200


def test_size_of_reported_conflicts_is_limited(managed: ManagedObject) -> None:
    names = [f"{number:010000}" for number in range(30)]
    managed.apply("one", spec(settings=dict.fromkeys(names, "1")))
    with pytest.raises(Conflict, match=r"failed with 30 conflicts(.|\n)*\nand 23 more$") as refusal:
        managed.apply("two", spec(settings=dict.fromkeys(names, "2")))
    details = refusal.value.details
    assert details is not None
    assert [cause.field for cause in details.causes] == [f".spec.settings.{name}" for name in names[:7]]


def test_single_conflict_is_one_line(managed: ManagedObject) -> None:
    managed.apply("one", spec(replicas=1))
    author = FieldManager("two", "Update", "v1", "scale")
    managed.entries = [author.entry({"f:spec": {"f:replicas": {}}}, "")]
    with pytest.raises(Conflict, match=r'^Apply failed with 1 conflict: conflict with "two" with subresource "scale" '
                                       r"using v1: .spec.replicas$"):  # fmt: skip
        managed.apply("one", spec(replicas=2))


def test_force_takes_ownership(managed: ManagedObject) -> None:
    managed.apply("one", spec(replicas=1, mode="a"))
    managed.apply("two", spec(replicas=2), force=True)
    assert managed.spec == {"replicas": 2, "mode": "a"}
    assert managed.owners("f:spec", "f:replicas") == ["two"]
    assert managed.owners("f:spec", "f:mode") == ["one"]


def test_field_left_out_is_removed_unless_co_owned(managed: ManagedObject) -> None:
    managed.apply("one", spec(replicas=1, mode="a", args=["x"]))
    managed.apply("two", spec(mode="a"))
    managed.apply("one", spec(args=["x"]))
    assert managed.spec == {"args": ["x"], "mode": "a"}
    assert managed.owners("f:spec", "f:mode") == ["two"]


def test_field_taken_over_by_update_remains(managed: ManagedObject) -> None:
    managed.apply("one", spec(replicas=1, mode="a"))
    managed.update("hand", {"replicas": 5, "mode": "a"})
    managed.apply("one", spec(mode="a"))
    assert managed.spec == {"replicas": 5, "mode": "a"}


def test_list_elements_have_owners(managed: ManagedObject) -> None:
    managed.apply("one", spec(steps=[{"name": "web", "image": "1"}], colors=["a"]))
    managed.apply("two", spec(steps=[{"name": "db", "image": "1"}], colors=["b"]))
    assert managed.spec == {
        "steps": [{"name": "web", "image": "1"}, {"name": "db", "image": "1"}],
        "colors": ["a", "b"],
    }
    managed.apply("one", spec(colors=["a", "b"]))
    assert managed.spec == {"steps": [{"name": "db", "image": "1"}], "colors": ["a", "b"]}
    managed.apply("two", spec())
    assert managed.spec == {"colors": ["a", "b"]}


@pytest.mark.parametrize("name", ["args", "plain"])
def test_atomic_list_has_one_owner(managed: ManagedObject, name: str) -> None:
    managed.apply("one", spec(**{name: ["a"]}))
    with pytest.raises(Conflict, match=rf"\.spec\.{name}$"):
        managed.apply("two", spec(**{name: ["a", "b"]}))
    managed.apply("two", spec(**{name: ["b"]}), force=True)
    assert managed.spec == {name: ["b"]}


@pytest.mark.parametrize(("name", "one", "two"), [("selector", "a", "b"), ("place", "zone", "rack")])
def test_atomic_map_has_one_owner(managed: ManagedObject, name: str, one: str, two: str) -> None:
    managed.apply("one", spec(**{name: {one: "1"}}))
    with pytest.raises(Conflict, match=rf"\.spec\.{name}$"):
        managed.apply("two", spec(**{name: {two: "1"}}))


def test_object_without_managers_is_before_first_apply(managed: ManagedObject) -> None:
    """KEP-555: on the first apply, all existing fields belong to `before-first-apply`."""
    managed.tree, managed.entries = {**spec(replicas=1, mode="a")}, []
    with pytest.raises(Conflict, match=r'conflict with "before-first-apply" using v1: \.spec\.replicas'):
        managed.apply("one", spec(replicas=2))
    managed.apply("one", spec(replicas=1))
    assert [(e["manager"], fields_of(e)) for e in managed.entries] == [
        ("one", {"f:spec": {"f:replicas": {}}}),
        ("before-first-apply", {"f:spec": {"f:replicas": {}, "f:mode": {}}}),
    ]


def test_identity_and_server_metadata_are_not_owned(managed: ManagedObject) -> None:
    managed.apply("one", {**spec(), "metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"x": "y"}}})
    assert fields_of(managed.entries[0]) == {"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {}}


def test_null_is_owned_and_removes_the_value(managed: ManagedObject) -> None:
    managed.apply("one", spec(mode="a", replicas=None))
    assert "replicas" not in managed.spec
    managed.update("two", {"mode": "a", "replicas": 3})
    with pytest.raises(Conflict, match=r"\.spec\.replicas$"):
        managed.apply("one", spec(mode="b", replicas=4))
    managed.apply("one", spec(mode="b", replicas=None), force=True)
    assert managed.spec == {"mode": "b"}


@pytest.mark.parametrize("create", [True, False])
def test_duplicate_elements_are_rejected(managed: ManagedObject, create: bool) -> None:
    if not create:
        managed.apply("one", spec(mode="a"))
    with pytest.raises(UnknownError, match=r'\.spec\.colors: duplicate entries for key \[="a"\]'):
        managed.apply("one", spec(colors=["a", "a"]))


class TestLastApplied:
    """Fields in the annotation of client-side `kubectl apply` belong to kubectl until another client changes them."""

    def client_side(self, world: ManagedObject, **members: Any) -> None:
        annotation = json.dumps({**spec(**members), "metadata": {"name": "a", "annotations": {}}})
        tree = spec(**members)
        tree["metadata"] = {"name": "a", "annotations": {ANNOTATION: annotation}}
        world.tree = tree
        fields = type_of(world.things.node).initial({**tree, "metadata": {"annotations": {ANNOTATION: ""}}})
        world.entries = [FieldManager("kubectl-client-side-apply", "Update", "v1").entry(fields, "")]

    def test_kubectl_takes_over_without_conflict(self, managed: ManagedObject) -> None:
        self.client_side(managed, replicas=1, mode="a")
        assert managed.apply("kubectl", spec(replicas=2, mode="a"))["spec"] == {"replicas": 2, "mode": "a"}
        assert managed.owners("f:spec", "f:replicas") == ["kubectl"]

    def test_other_managers_conflict(self, managed: ManagedObject) -> None:
        self.client_side(managed, replicas=1)
        with pytest.raises(Conflict):
            managed.apply("other", spec(replicas=2))

    def test_field_changed_since_last_applied_conflicts(self, managed: ManagedObject) -> None:
        self.client_side(managed, replicas=1, mode="a")
        managed.update("hand", {"replicas": 5, "mode": "a"})
        with pytest.raises(
            Conflict, match=r'^Apply failed with 1 conflict: conflict with "hand" using v1: \S+replicas$'
        ):
            managed.apply("kubectl", spec(replicas=2, mode="b"))

    def test_last_applied_annotation_is_updated(self, managed: ManagedObject) -> None:
        self.client_side(managed, replicas=1)
        tree = managed.apply("kubectl", spec(replicas=2))
        assert json.loads(tree["metadata"]["annotations"][ANNOTATION])["spec"] == {"replicas": 2}
        assert managed.apply("kubectl", spec(replicas=2)) == tree

    @pytest.mark.parametrize("annotation", ["", "{", "[]", "{}", '{"apiVersion":"v1","spec":1}', '{"apiVersion":"v2"}'])
    def test_unrelated_annotation_is_ignored(self, managed: ManagedObject, annotation: str) -> None:
        self.client_side(managed, replicas=1)
        assert managed.tree is not None
        managed.tree["metadata"]["annotations"][ANNOTATION] = annotation
        with pytest.raises(Conflict):
            managed.apply("kubectl", spec(replicas=2))


def test_too_long_annotation_is_removed() -> None:
    tree = {"metadata": {"annotations": {ANNOTATION: "{}", "mine": "1"}}}
    short, long = ({"metadata": {"name": "a"}, "data": "é" * count} for count in (100_000, 140_000))
    assert apply.with_last_applied(tree, short)["metadata"]["annotations"].keys() == {ANNOTATION, "mine"}
    assert apply.with_last_applied(tree, long)["metadata"]["annotations"].keys() == {"mine"}


def test_owned_field_remains_when_empty(things) -> None:
    world = ManagedObject(things)
    world.apply("one", things.thing({"free": {"a": "1", "b": {"a": "1"}}}))
    world.apply("two", things.thing({"free": {"b": {"a": "2"}}}), force=True)
    assert world.apply("two", things.thing())["spec"]["free"] == {"a": "1", "b": {}}


@settings(max_examples=100)
@given(st.data())
def test_apply_is_idempotent(things, data: st.DataObject) -> None:
    world = ManagedObject(things)
    for manager, config in (("one", data.draw(things.drawn)), ("two", data.draw(things.drawn))):
        tree = world.apply(manager, config, force=True)
        entries = world.entries
        assert (world.apply(manager, config), world.entries) == (tree, entries)


@settings(max_examples=100)
@given(st.data())
def test_forced_apply_takes_disputed_fields(things, data: st.DataObject) -> None:
    world = ManagedObject(things)
    world.apply("one", data.draw(things.drawn))
    config = data.draw(things.drawn)
    disputed = world.disputes("two", config)
    world.apply("two", config, force=True)
    owned = {e["manager"]: {apply.render(path) for path in paths(fields_of(e))} for e in world.entries}
    assert disputed.isdisjoint(owned.get("one", ()))
    declared = paths(type_of(things.node).declared({name: config[name] for name in config if name == "spec"}))
    assert {apply.render(path) for path in declared} <= owned.get("two", set())


@settings(max_examples=100)
@given(st.data())
def test_empty_configuration_removes_solely_owned_fields(things, data: st.DataObject) -> None:
    world = ManagedObject(things)
    world.apply("one", data.draw(things.drawn))
    world.apply("two", data.draw(things.drawn), force=True)
    kept = {path for e in world.entries if e["manager"] == "one" for path in paths(fields_of(e))}
    world.apply("two", things.thing())
    assert world.tree is not None
    filled = {("f:metadata",), ("f:spec",)}  # like the protocol of a port
    left = {path for path in paths(type_of(things.node).declared(owned_part(world.tree))) if path[-1] != "f:protocol"}
    assert left - filled == {path for path in kept if path[-1] != "f:protocol"}
    assert all(entry["manager"] == "one" for entry in world.entries)


@settings(max_examples=100)
@given(st.data())
def test_appliers_of_different_fields_commute(things, data: st.DataObject) -> None:
    one, two = data.draw(things.drawn), data.draw(things.drawn)
    two = {**two, "spec": {name: v for name, v in two.get("spec", {}).items() if name not in one.get("spec", {})}}
    two["metadata"] = {"name": "a"}
    there, back = ManagedObject(things), ManagedObject(things)
    there.apply("one", one)
    there.apply("two", two)
    back.apply("two", two)
    back.apply("one", one)
    assert there.tree == back.tree
    assert {e["manager"]: fields_of(e) for e in there.entries} == {e["manager"]: fields_of(e) for e in back.entries}
