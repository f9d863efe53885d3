"""The definition of boats, a custom resource that uses all features of definitions, for tests with other programs."""

from typing import Any

Tree = dict[str, Any]

_SIZE: Tree = {"type": "integer", "minimum": 1, "description": "How many people she takes."}
_HOME: Tree = {"type": "string", "default": "Kiel", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
_MASTS: Tree = {
    "type": "array",
    "maxItems": 5,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "height": {"type": "integer"}},
    },
}
_SPEC: Tree = {
    "type": "object",
    "description": "The boat as she should be.",
    "required": ["size"],
    "properties": {"size": _SIZE, "crew": {"type": "integer", "default": 0}, "home": _HOME, "masts": _MASTS},
    "x-kubernetes-validations": [
        {"rule": "self.crew <= self.size", "messageExpression": "'more than %d people'.format([self.size])"}
    ],
}
_SCALE = {
    "specReplicasPath": ".spec.crew",
    "statusReplicasPath": ".status.crew",
    "labelSelectorPath": ".status.selector",
}


def version(name: str = "v1", *, storage: bool = True, **fields: Tree) -> Tree:
    """A version of boats; `fields` are more fields of the spec."""
    spec = {**_SPEC, "properties": {**_SPEC["properties"], **fields}}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {"status": {}, "scale": _SCALE},
        "selectableFields": [{"jsonPath": ".spec.home"}],
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Home", "type": "string", "jsonPath": ".spec.home", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }


def definition(group: str, *versions: Tree) -> Tree:
    """The definition of boats in a group."""
    names = {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"boats.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {**names, "shortNames": ["bo"], "categories": ["fleet"]},
            "versions": list(versions or [version()]),
        },
    }


def boat(group: str, name: str, /, size: int = 4, *, api_version: str = "v1", **spec: Any) -> Tree:
    """One boat."""
    body = {"size": size, **spec}
    return {"apiVersion": f"{group}/{api_version}", "kind": "Boat", "metadata": {"name": name}, "spec": body}
