"""The chart grants exactly what the controllers declare, and the API server takes everything in it."""

import re
from pathlib import Path

import yaml

from apiserver_stub.kinds.clean import clean
from apiserver_stub.kinds.registry import built_in
from apiserver_stub.kinds.validate import validate
from controller_manager.app.catalog import installed
from controller_manager.app.permissions import chart_role

CHART = Path("charts/cluster-controller-manager")


def render(text: str, values: dict[str, object]) -> str:
    """The templates use plain substitutions only."""

    def value(match: re.Match[str]) -> str:
        found: object = {"Release": {"Name": "manager", "Namespace": "kube-system"}, "Values": values}
        for part in match[1].split("."):
            assert isinstance(found, dict)
            found = found[part]
        return str(found)

    return re.sub(r"\{\{ \.([\w.]+) \}\}", value, text)


def test_the_role_is_what_the_controllers_declare(root: Path) -> None:
    assert (root / CHART / "templates/rbac.yaml").read_text() == chart_role(installed())


def test_every_object_of_the_chart_is_valid(root: Path) -> None:
    values = yaml.safe_load((root / CHART / "values.yaml").read_text())
    kinds = {(kind.api_version, kind.kind): kind for kind in built_in().all()}
    seen = set()
    for template in sorted((root / CHART / "templates").glob("*.yaml")):
        for tree in yaml.safe_load_all(render(template.read_text(), values)):
            kind = kinds[tree["apiVersion"], tree["kind"]]
            report = clean(tree, kind)
            assert (report.unknown, report.wrong) == ((), ())
            assert validate(kind, tree, None) == []
            seen.add(kind.kind)
    assert seen == {
        "ServiceAccount",
        "Deployment",
        "Service",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    }
