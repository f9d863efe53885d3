"""The resources of a CustomResourceDefinition: one for each served version."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from apiserver_stub.apis.apiextensions.conversion import ConversionFailed
from apiserver_stub.common.offload import Offload, at_once
from apiserver_stub.encode.json import encode
from apiserver_stub.kinds.custom_objects import CustomRules
from apiserver_stub.kinds.printers.cells import CREATED
from apiserver_stub.kinds.printers.custom import printer_of
from apiserver_stub.kinds.published import names, schemas
from apiserver_stub.kinds.resource_info import (
    Converter,
    Printer,
    ResourceInfo,
    SelectableField,
    Subresource,
)
from apiserver_stub.kinds.rules.metadata import finalizer_warnings
from apiserver_stub.kinds.strategies.api_services import version_rank
from apiserver_stub.kinds.strategies.scale import ScalePaths
from apiserver_stub.kinds.strategies.strategy import METADATA, NO_PARTS, STATUS, Strategy
from apiserver_stub.kinds.structural.cost import SchemaCost, prepare
from apiserver_stub.kinds.structural.objects import complete, fit
from apiserver_stub.kinds.structural.schema import TYPE_META, StructuralSchema
from controller_manager.common.api.tree import Tree

VERBS = frozenset({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"})
_OF_PARTS = frozenset({"get", "patch", "update"})
_SCALE = ("autoscaling", "v1", "Scale")
_RESET = {"status": METADATA}


def resources_of(
    definition: Tree, converter: Converter | None = None, offload: Offload | None = None
) -> tuple[ResourceInfo, ...]:
    """Return the resources of a definition with accepted names. Objects of several versions are converted by
    `converter`; expensive pruning runs in `offload`.
    """
    spec = definition["spec"]
    group = spec["group"]
    schemas = {f"{group}/{version['name']}": _schema(version) for version in spec["versions"]}
    several = None if converter is None or len(schemas) < 2 else _Versions(schemas, converter, offload or Offload())
    return tuple(_resource(definition, version, schemas, several) for version in spec["versions"] if version["served"])


def _schema(version: Tree) -> StructuralSchema:
    return StructuralSchema((version.get("schema") or {}).get("openAPIV3Schema") or {}, root=True)


class _Versions:
    """Reads objects of several versions: sets the defaults of the stored version, converts them, and prunes fields that
    the target version's schema does not declare.
    """

    def __init__(self, schemas: Mapping[str, StructuralSchema], converter: Converter, offload: Offload) -> None:
        self._schemas = schemas
        self._converter = converter
        self._offload = offload
        self._costs = {version: SchemaCost(schema) for version, schema in schemas.items()}

    def read(self, tree: Tree) -> Tree:
        """Set the defaults of a stored object and return it."""
        schema = self._schemas.get(tree["apiVersion"])
        if schema is not None:
            complete(tree, schema)
        return tree

    async def __call__(self, trees: Sequence[Tree], api_version: str, /) -> list[Tree]:
        """Return the objects in another version."""
        converted, _ = await self._fitted(trees, api_version)
        return converted

    async def strictly(self, trees: Sequence[Tree], api_version: str, /) -> list[Tree]:
        """Return the objects in another version. Raises `ConversionFailed` if its schema does not declare all
        fields.
        """
        converted, unknown = await self._fitted(trees, api_version)
        if unknown:
            raise _undeclared(unknown)
        return converted

    async def _fitted(self, trees: Sequence[Tree], api_version: str) -> tuple[list[Tree], Sequence[str]]:
        """Return the objects in another version, and the undeclared fields of the first object that has some."""
        converted = await self._converter(trees, api_version)
        changed = [each for tree, each in zip(trees, converted, strict=True) if tree["apiVersion"] != api_version]
        cost = self._costs[api_version]
        run = self._offload.run if any(cost.is_costly(encode(each)) for each in changed) else at_once
        return converted, await run(partial(_fit_all, changed, self._schemas[api_version]))


def _fit_all(trees: Sequence[Tree], schema: StructuralSchema) -> Sequence[str]:
    """Prune objects by a schema in place; return the unknown fields of the first object that has some."""
    schema.derived(prepare)
    found = [fit(tree, schema, drop=True).unknown for tree in trees]
    return next(filter(None, found), ())


def _undeclared(paths: Sequence[str]) -> ConversionFailed:
    problems = [f".{path}: field not declared in schema" for path in paths]
    return ConversionFailed(problems[0] if len(problems) == 1 else "\n  ".join(("errors:", *problems)))


def _resource(
    definition: Tree, version: Tree, schemas: Mapping[str, StructuralSchema], several: _Versions | None
) -> ResourceInfo:
    spec = definition["spec"]
    accepted = (definition.get("status") or {}).get("acceptedNames") or spec["names"]
    group, kind, plural = spec["group"], accepted["kind"], accepted["plural"]
    namespaced = spec["scope"] == "Namespaced"
    schema = schemas[f"{group}/{version['name']}"]
    parts: Tree = version.get("subresources") or {}
    scale = _scale_paths(parts["scale"]) if parts.get("scale") is not None else None
    rules = CustomRules(f"{group}/{version['name']}", kind, namespaced, schema, scale)
    has_status = parts.get("status") is not None
    printer = printer_of(version.get("additionalPrinterColumns") or ())
    status = Subresource("status", kind, group, version["name"], _OF_PARTS, schema, printer=printer)
    return ResourceInfo(
        group=group,
        version=version["name"],
        kind=kind,
        plural=plural,
        singular=accepted.get("singular") or kind.lower(),
        namespaced=namespaced,
        verbs=VERBS,
        storage=f"{plural}.{group}",
        schema=schema,
        strategy=_strategy(rules, has_status=has_status),
        short_names=tuple(accepted.get("shortNames") or ()),
        categories=tuple(accepted.get("categories") or ()),
        subresources={part.name: part for part in _subresources(status, parts)},
        scale=scale,
        fields=dict(_selectable(version.get("selectableFields") or ())),
        stored_as=(group, next(v["name"] for v in spec["versions"] if v["storage"]), kind),
        from_storage=None if several is None else several.read,
        converter=several,
        strict_converter=None if several is None else several.strictly,
        complete=rules.complete if several is None else None,
        is_costly=SchemaCost(schema).is_costly,
        defaults=rules.default,
        judge=rules.judge,
        warnings={"": finalizer_warnings},
        deprecation=_deprecation(spec, version),
        printer=printer,
        collection=accepted.get("listKind") or "",
    )


def _strategy(rules: CustomRules, *, has_status: bool) -> Strategy:
    if not has_status:
        return Strategy(NO_PARTS, generation=True, uncounted=TYPE_META, unconditional_update=False)
    return Strategy(STATUS, generation=True, reset_fields=_RESET, on_create=rules.on_create, unconditional_update=False)


def _subresources(status: Subresource, parts: Tree) -> Iterator[Subresource]:
    if parts.get("status") is not None:
        yield status
    if parts.get("scale") is not None:
        definition = names()["/".join(_SCALE)]
        group, version, kind = _SCALE
        yield Subresource(
            "scale", kind, group, version, _OF_PARTS, schemas().node(definition), definition, _SCALE_PRINTER
        )


_SCALE_PRINTER: Printer = printer_of((
    {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas", "description": "How many are wanted"},
    {"name": "Available", "type": "integer", "jsonPath": ".status.replicas", "description": "How many there are"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": CREATED},
))  # fmt: skip


def _scale_paths(scale: Tree) -> ScalePaths:
    spec, status, selector = (
        _path(scale.get(f"{name}Path") or "") for name in ("specReplicas", "statusReplicas", "labelSelector")
    )
    return ScalePaths(spec, status, selector, strict=True)


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.removeprefix(".").split(".")) if text else ()


def _selectable(fields: Any) -> Iterator[tuple[str, SelectableField]]:
    for field in fields:
        path = field["jsonPath"].removeprefix(".")
        yield path, SelectableField(path)


def _deprecation(spec: Tree, version: Tree) -> str:
    """Return the warning for users of a deprecated version."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    group, kind = spec["group"], spec["names"]["kind"]
    warning = f"{group}/{version['name']} {kind} is deprecated"
    own = version_rank(version["name"])
    better = [
        v["name"] for v in spec["versions"] if v["served"] and not v.get("deprecated") and version_rank(v["name"]) < own
    ]
    return f"{warning}; use {group}/{min(better, key=version_rank)} {kind}" if better else warning
