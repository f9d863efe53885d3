"""The default priority levels and flow schemas (KEP-1040), and how edits of them are handled.

| object | its spec differs from the default | annotation `autoupdate-spec` |
|--|--|--|
| `exempt`, `catch-all` (mandatory) | is corrected | `true` |
| the others (suggested), annotation `true` | is corrected | unchanged |
| suggested, annotation `false` | unchanged | unchanged |
| suggested, without or with another annotation, never edited (generation 1) | is corrected | becomes `true` |
| suggested, without or with another annotation, edited | unchanged | becomes `false` |
"""

from functools import partial

from apiserver_stub.bootstrap.objects import ClusterInfo, Objects
from apiserver_stub.flow_control.configuration import GROUP
from apiserver_stub.kinds.strategies.flow_control import MANDATORY, suggested
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.tasks import all_of

_API = f"/apis/{GROUP}/v1"
_AUTO_UPDATE = f"apf.{PLATFORM_DOMAIN}/autoupdate-spec"
_MANAGER = "api-priority-and-fairness-config-producer-v1"


async def ensure_flow_control(objects: Objects, _: ClusterInfo) -> None:
    """Create or correct all of them, levels first."""
    specs = suggested()
    await all_of(*(_ensure(objects, "PriorityLevelConfiguration", name, spec) for name, spec in specs.levels.items()))
    await all_of(*(_ensure(objects, "FlowSchema", name, spec) for name, spec in specs.schemas.items()))


async def _ensure(objects: Objects, kind: str, name: str, spec: Tree) -> None:
    await objects.ensure_revised(
        f"{_API}/{kind.lower()}s",
        _object(kind, name, spec),
        partial(revised, spec=spec, mandatory=name in MANDATORY),
        manager=_MANAGER,
    )


def revised(found: Tree, spec: Tree, *, mandatory: bool) -> Tree | None:
    """Return the object corrected as in the table above; None to leave it unchanged."""
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
    return {"kind": kind, "apiVersion": f"{GROUP}/v1", "metadata": metadata, "spec": spec}
