"""Valid objects of every kind, changed in one field, and the reported causes."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema.clean import clean
from apiserver_stub.kinds.validate import validate
from controller_manager.common.api.tree import Tree

Reported = list[tuple[str, str]]
GONE = "<gone>"


class Validator:
    """Validates valid objects in which paths such as `spec.containers.0.image` were set; `<gone>` removes one."""

    def __init__(self) -> None:
        self._kinds = {f"{kind.api_version}/{kind.kind}": kind for kind in built_in().all()}
        path = Path(__file__).parent / "good.yaml"
        trees = yaml.safe_load_all(path.read_text())
        self._good = {f"{tree['apiVersion']}/{tree['kind']}": tree for tree in trees}

    @property
    def names(self) -> list[str]:
        return list(self._good)

    def kind(self, name: str) -> ResourceInfo:
        return self._kinds[name]

    def tree(self, name: str, changes: Mapping[str, Any]) -> Tree:
        """The changed object in normal form and with defaults."""
        tree = copy.deepcopy(self._good[name])
        for path, value in changes.items():
            put(tree, path, copy.deepcopy(value))
        report = clean(tree, self._kinds[name])
        assert (report.unknown, report.wrong) == ((), ())
        apply_defaults(tree, self._kinds[name])
        return tree

    def __call__(self, name: str, changes: Mapping[str, Any]) -> Reported:
        """The causes of a new object: fields with reasons, sorted."""
        return reported(validate(self._kinds[name], self.tree(name, changes), None))

    def change(self, name: str, before: Mapping[str, Any], after: Mapping[str, Any], part: str = "") -> Reported:
        """The causes of an update between two changed objects; the second includes the changes of the first."""
        old, new = self.tree(name, before), self.tree(name, {**before, **after})
        return reported(validate(self._kinds[name], new, old, part))


def put(tree: Any, path: str, value: Any) -> None:
    *parents, last = path.replace("\\.", "\0").split(".")
    for part in parents:
        tree = tree[int(part)] if isinstance(tree, list) else tree.setdefault(part.replace("\0", "."), {})
    place: Any = int(last) if isinstance(tree, list) else last.replace("\0", ".")
    if value == GONE:
        tree.pop(place, None)
    elif isinstance(tree, list) and place == len(tree):
        tree.append(value)
    else:
        tree[place] = value


def reported(causes: list[Any]) -> Reported:
    return sorted((cause.field, cause.reason.removeprefix("FieldValue")) for cause in causes)


@pytest.fixture(scope="session")
def validator() -> Callable[..., Reported]:
    return Validator()
