"""The priority levels and flow schemas every cluster has (KEP-1040), and what becomes of edits of them.

| object | its spec differs from ours | annotation `autoupdate-spec` |
|--|--|--|
| `exempt`, `catch-all` (mandatory) | is put right | `true` |
| the others (suggested), annotation `true` | is put right | stays |
| suggested, annotation `false` | stays | stays |
| suggested, without or with another annotation, never edited (generation 1) | is put right | becomes `true` |
| suggested, without or with another annotation, edited | stays | becomes `false` |
"""

from functools import cache, partial
from importlib import resources

import msgspec

from apiserver_stub.bootstrap.objects import ClusterInfo, Objects, Tree
from controller_manager.api.platform import GROUP_DOMAIN, PLATFORM_DOMAIN
from controller_manager.base.tasks import all_of

_GROUP = f"flowcontrol.apiserver.{GROUP_DOMAIN}"
_API = f"/apis/{_GROUP}/v1"
_AUTO_UPDATE = f"apf.{PLATFORM_DOMAIN}/autoupdate-spec"
_MANDATORY = frozenset({"exempt", "catch-all"})
_MANAGER = "api-priority-and-fairness-config-producer-v1"


class _Specs(msgspec.Struct):
    levels: dict[str, Tree]
    schemas: dict[str, Tree]


async def ensure_flow_control(objects: Objects, _: ClusterInfo) -> None:
    """Create or correct all of them, levels first; schemas say of themselves that their level exists."""
    specs = _specs()
    await all_of(*(_ensure(objects, "PriorityLevelConfiguration", name, spec) for name, spec in specs.levels.items()))
    await all_of(
        *(
            _ensure(objects, "FlowSchema", name, spec, _found(spec["priorityLevelConfiguration"]["name"]))
            for name, spec in specs.schemas.items()
        )
    )


async def _ensure(objects: Objects, kind: str, name: str, spec: Tree, condition: Tree | None = None) -> None:
    await objects.ensure_revised(
        f"{_API}/{kind.lower()}s",
        _object(kind, name, spec),
        partial(revised, spec=spec, mandatory=name in _MANDATORY),
        manager=_MANAGER,
        condition=condition,
    )


def revised(found: Tree, spec: Tree, *, mandatory: bool) -> Tree | None:
    """Return the object corrected by the table above; None if it may stay."""
    annotations = found["metadata"].get("annotations") or {}
    updates = mandatory or _updates_itself(annotations.get(_AUTO_UPDATE, ""), found["metadata"].get("generation", 0))
    noted = "true" if updates else "false"
    corrected = dict(found)
    if updates:
        corrected["spec"] = spec
    if annotations.get(_AUTO_UPDATE) != noted:
        corrected["metadata"] = {**found["metadata"], "annotations": {**annotations, _AUTO_UPDATE: noted}}
    return corrected if corrected != found else None


def _updates_itself(annotation: str, generation: int) -> bool:
    return annotation == "true" if annotation in ("true", "false") else generation == 1


def _object(kind: str, name: str, spec: Tree) -> Tree:
    metadata = {"name": name, "annotations": {_AUTO_UPDATE: "true"}}
    return {"kind": kind, "apiVersion": f"{_GROUP}/v1", "metadata": metadata, "spec": spec}


def _found(level: str) -> Tree:
    return {"type": "Dangling", "status": "False", "reason": "Found", "message": f"the priority level {level} exists"}


@cache
def _specs() -> _Specs:
    return msgspec.json.decode(resources.files(__package__).joinpath("flow_control.json").read_bytes(), type=_Specs)
