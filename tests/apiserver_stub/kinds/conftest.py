"""Minimal objects of any kind, and their reported causes."""

import copy

import pytest

from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import Report, clean
from apiserver_stub.kinds.validate import validate
from controller_manager.common.api.tree import Tree


class ObjectValidator:
    """Validates objects after adding a name, a namespace, the normal form and defaults."""

    def __init__(self) -> None:
        self._kinds = built_in()

    def kind(self, api_version: str, plural: str) -> ResourceInfo:
        group, _, version = api_version.rpartition("/")
        kind = self._kinds.find(group, version, plural)
        assert kind is not None
        return kind

    def object(self, kind: ResourceInfo, tree: Tree) -> Tree:
        metadata = {"name": "a", **({"namespace": "n"} if kind.namespaced else {})}
        whole = copy.deepcopy({"kind": kind.kind, "apiVersion": kind.api_version, **tree})
        whole["metadata"] = {**metadata, **whole.get("metadata", {})}
        assert clean(whole, kind) == Report()
        apply_defaults(whole, kind)
        return whole

    def problems(self, api_version: str, plural: str, tree: Tree, old: Tree | None = None) -> list[tuple[str, str]]:
        """Field and message of each problem of a new object, or of an update of `old`."""
        kind = self.kind(api_version, plural)
        before = None if old is None else self.object(kind, old)
        return [(c.field, c.message) for c in validate(kind, self.object(kind, tree), before)]

    def fields(self, api_version: str, plural: str, tree: Tree, old: Tree | None = None) -> list[str]:
        return [field for field, _ in self.problems(api_version, plural, tree, old)]


@pytest.fixture(scope="session")
def validator() -> ObjectValidator:
    return ObjectValidator()
