"""What the process and its controllers need to be allowed: prints the chart's role, `python -m …permissions`."""

import sys
from collections.abc import Sequence
from typing import Any

import yaml

from controller_manager.app import catalog
from controller_manager.controller import Rule

# What the process does by itself: record events, ask who its callers are and what they may see.
_OWN = (
    Rule(("",), ("events",), ("create", "patch", "update")),
    Rule(("authentication.k8s.io",), ("tokenreviews",), ("create",)),
    Rule(("authorization.k8s.io",), ("subjectaccessreviews",), ("create",)),
)
_SCOPE = {"namespace": "{{ .Release.Namespace }}"}
_NAME = {"name": "{{ .Release.Name }}"}
_HEAD = "# Written by `python -m controller_manager.app.permissions`: the rules that the controllers declare.\n"


def chart_role(specs: Sequence[catalog.AnySpec]) -> str:
    """The chart's ClusterRole and Role, and what binds them to its service account."""
    rules = [rule for spec in specs for rule in spec.rbac]
    lease = Rule(("coordination.k8s.io",), ("leases",), ("create", "get", "update"))
    documents = [*_granted("ClusterRole", {}, [*_OWN, *rules]), *_granted("Role", _SCOPE, [lease])]
    return _HEAD + yaml.safe_dump_all(documents, sort_keys=False, width=120)


def _granted(kind: str, scope: dict[str, str], rules: Sequence[Rule]) -> list[dict[str, Any]]:
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", **_NAME, **_SCOPE}
    metadata = {**_NAME, **scope}
    return [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": [_rule(rule) for rule in rules]},
        {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": dict(metadata),
            "roleRef": {"apiGroup": group, "kind": kind, **_NAME},
            "subjects": [subject],
        },
    ]


def _rule(rule: Rule) -> dict[str, list[str]]:
    return {"apiGroups": list(rule.groups), "resources": list(rule.resources), "verbs": list(rule.verbs)}


if __name__ == "__main__":
    sys.stdout.write(chart_role(catalog.installed()))
