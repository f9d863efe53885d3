"""The built-in kinds are complete, ordered and resolve."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_stub.kinds.built_in import RULES, SELECTABLE
from apiserver_stub.kinds.printers import PRINTERS
from apiserver_stub.kinds.registry import ResourceChange, ResourceRegistry, built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.schema import ANYTHING, Schema
from apiserver_stub.kinds.strategies.kinds import STRATEGIES
from apiserver_stub.kinds.warnings.kinds import DEPRECATED, WARNINGS


@pytest.fixture(scope="module")
def kinds() -> ResourceRegistry:
    return built_in(lambda _: True)


def _reached(node: Schema, seen: set[int]) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    for inner in (*node.fields.values(), node.items, node.values):
        if inner is not None:
            _reached(inner, seen)


def _node_at(node: Schema, *path: str) -> Schema | None:
    """The node at a path of field names; arrays and maps stand for their elements."""
    found: Schema | None = node
    for name in path:
        while found is not None and found.type == "array":
            found = found.items
        if found is None:
            return None
        found = found.fields.get(name) or found.values
    return found


def test_every_schema_resolves_its_references(kinds: ResourceRegistry) -> None:
    seen: set[int] = set()
    for kind in kinds.all():
        assert {"apiVersion", "kind", "metadata"} <= kind.schema.fields.keys()
        _reached(kind.schema, seen)
    assert len(seen) > 2000


def test_every_required_field_exists(kinds: ResourceRegistry) -> None:
    for kind in kinds.all():
        assert set(kind.schema.required) <= kind.schema.fields.keys()


def test_recursive_definition_is_one_shared_node(kinds: ResourceRegistry) -> None:
    definition = kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert definition is not None
    schema = _node_at(definition.schema, "spec", "versions", "schema", "openAPIV3Schema")
    assert schema is not None
    assert schema.fields["not"] is schema
    assert _node_at(schema, "properties", "anything") is schema


def test_keys_beside_reference_extend_the_definition(kinds: ResourceRegistry) -> None:
    deployments = kinds.find("apps", "v1", "deployments")
    assert deployments is not None
    strategy = _node_at(deployments.schema, "spec", "strategy")
    assert strategy is not None
    assert strategy.patch_strategy == {"retainKeys"}
    assert "rollingUpdate" in strategy.fields


def test_list_types_and_patch_strategies_are_loaded(kinds: ResourceRegistry) -> None:
    pods = kinds.find("", "v1", "pods")
    assert pods is not None
    containers = _node_at(pods.schema, "spec", "containers")
    assert containers is not None
    assert (containers.list_type, containers.list_map_keys) == ("map", ("name",))
    assert (containers.patch_strategy, containers.patch_merge_key) == ({"merge"}, "name")
    volumes = _node_at(pods.schema, "spec", "volumes")
    assert volumes is not None
    assert volumes.patch_strategy == {"merge", "retainKeys"}


def test_groups_prefer_the_newest_stable_version(kinds: ResourceRegistry) -> None:
    versions = {group.name: group.versions for group in kinds.groups()}
    assert versions["autoscaling"] == ("v2", "v1")
    assert set(versions[""]) == {"v1"}
    assert next(iter(versions)) == ""


def test_added_versions_are_ranked_stable_beta_alpha(kinds: ResourceRegistry) -> None:
    lease = kinds.find("coordination.k8s.io", "v1", "leases")
    assert lease is not None
    own = ResourceRegistry(
        replace(lease, group="x.io", version=v) for v in ("v1alpha1", "v1", "odd", "v1beta2", "v2", "v1beta10")
    )
    assert own.groups()[0].versions == ("v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "odd")


def test_resources_can_be_added_changed_and_removed(kinds: ResourceRegistry) -> None:
    lease = kinds.find("coordination.k8s.io", "v1", "leases")
    assert lease is not None
    other = replace(lease, short_names=("ls",))
    own, changes = ResourceRegistry(), list[ResourceChange]()
    own.subscribe(changes.append)
    for step in (own.add, own.add, own.remove, own.remove):
        step(lease)
    assert own.groups() == ()
    own.add(lease)
    own.add(other)
    assert (own.serves(lease), own.serves(other)) == (False, True)
    own.remove(lease)  # everything served under its names
    assert own.find("coordination.k8s.io", "v1", "leases") is None
    assert changes == [(None, lease), (lease, None), (None, lease), (lease, other), (other, None)]
    assert [change.info for change in changes] == [lease, lease, lease, other, other]
    assert own.generation == 5


NAMES = st.tuples(st.sampled_from(["", "a.io", "b.io"]), st.sampled_from(["v1", "v2"]), st.sampled_from(["xs", "ys"]))


@given(st.lists(st.tuples(st.booleans(), NAMES, st.integers(0, 1))))
def test_subscribers_can_track_served_kinds(steps: list[tuple[bool, tuple[str, str, str], int]]) -> None:
    known: dict[tuple[str, str, str], ResourceInfo] = {}
    seen: list[int] = []

    def follow(change: ResourceChange) -> None:
        info = change.info
        key = info.group, info.version, info.plural
        assert known.get(key) is change.before
        assert own.find(*key) is change.after
        seen.append(own.generation)
        if change.after is None:
            del known[key]
        else:
            known[key] = change.after

    own = ResourceRegistry()
    own.subscribe(follow)
    infos = {(*names, edition): _resource(*names) for _, names, edition in steps}
    for added, names, edition in steps:
        info = infos[*names, edition]
        if added:
            own.add(info)
            assert own.serves(info)
        else:
            own.remove(info)
            assert own.find(*names) is None
    assert sorted(known) == sorted((info.group, info.version, info.plural) for info in own.all())
    assert all(own.serves(info) for info in known.values())
    assert seen == list(range(1, own.generation + 1))
    assert {(group.name, version) for group in own.groups() for version in group.versions} == {key[:2] for key in known}


def _resource(group: str, version: str, plural: str) -> ResourceInfo:
    return ResourceInfo(group, version, "X", plural, "x", True, frozenset(), plural, ANYTHING)


@pytest.mark.parametrize(
    ("group", "version", "plural", "storage", "persisted"),
    [
        ("", "v1", "pods", "pods", True),
        ("apps", "v1", "deployments", "deployments.apps", True),
        ("events.k8s.io", "v1", "events", "events", True),
        ("autoscaling", "v1", "horizontalpodautoscalers", "horizontalpodautoscalers.autoscaling", True),
        ("autoscaling", "v2", "horizontalpodautoscalers", "horizontalpodautoscalers.autoscaling", True),
        ("", "v1", "bindings", "bindings", False),
        ("authentication.k8s.io", "v1", "tokenreviews", "tokenreviews.authentication.k8s.io", False),
    ],
)
def test_storage_kind_of_resource(
    kinds: ResourceRegistry, group: str, version: str, plural: str, storage: str, persisted: bool
) -> None:
    kind = kinds.find(group, version, plural)
    assert kind is not None
    assert (kind.storage, kind.persisted) == (storage, persisted)
    assert (kind.to_storage is None) == (kind.from_storage is None)


def test_every_scale_subresource_has_paths(kinds: ResourceRegistry) -> None:
    scaled = {kind.name for kind in kinds.all() if kind.scale is not None}
    assert scaled == {"deployments.apps", "replicasets.apps", "statefulsets.apps", "replicationcontrollers"}


def test_subresources_have_body_kinds(kinds: ResourceRegistry) -> None:
    pods, deployments = kinds.find("", "v1", "pods"), kinds.find("apps", "v1", "deployments")
    assert pods is not None
    assert deployments is not None
    assert pods.subresources["status"].schema is pods.schema
    assert pods.subresources["status"].printer is pods.printer
    scale = deployments.subresources["scale"]
    assert [column[0] for column in scale.printer.columns][1:3] == ["Desired", "Available"]
    for body in (scale, pods.subresources["eviction"], pods.subresources["binding"]):
        assert "apiVersion" in body.schema.fields
    assert pods.subresources["exec"].schema.type == "any"


def test_selectable_fields_exist_in_schema(kinds: ResourceRegistry) -> None:
    by_name = {kind.name: kind for kind in kinds.all()}
    for name in SELECTABLE:
        kind = by_name[name]
        stored = by_name[kind.storage]
        for field in kind.fields.values():
            assert _node_at(stored.schema, *field.path.split(".")) is not None, field.path


def test_every_table_row_names_an_existing_kind(kinds: ResourceRegistry) -> None:
    """Every entry of the tables by name belongs to an existing kind."""
    infos = tuple(kinds.all())
    names = {info.name for info in infos}
    qualified = {f"{info.api_version}/{info.kind}" for info in infos}
    bodies = {(one.group, one.kind) for info in infos for one in (info, *info.subresources.values())}
    assert STRATEGIES.keys() <= names
    assert SELECTABLE.keys() <= names
    assert RULES.keys() <= qualified
    assert {name for table in WARNINGS.values() for name in table} <= qualified
    assert DEPRECATED.keys() <= qualified
    assert PRINTERS.keys() <= bodies
    for info in infos:
        assert info.warnings.keys() <= {"", *info.subresources}
        assert info.rules.subresources.keys() <= info.subresources.keys()
        assert {
            *info.strategy.subresources,
            *info.strategy.shared,
            *info.strategy.reset_fields,
        } <= info.subresources.keys()
