"""Pod templates: comparison, hash, and the replica set of a template; pure."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.apps import DEPLOYMENTS, Deployment, ReplicaSet, ReplicaSetSpec
from controller_manager.common.api.core import PodTemplateSpec
from controller_manager.common.api.model import EMPTY_RAW, ObjectMeta
from controller_manager.common.api.quantity import canonical
from controller_manager.framework import controller_ref
from controller_manager.framework.controller.history import revision_hash

HASH = "pod-template-hash"

_LONGEST_NAME = 253
# Fields that are quantities, and fields that are maps of quantities.
_QUANTITY = frozenset(("divisor", "sizeLimit"))
_QUANTITIES = frozenset(("limits", "overhead", "requests"))


def is_same(one: PodTemplateSpec, other: PodTemplateSpec) -> bool:
    """Return whether two templates are equal except for the hash label."""
    if _metadata(one) != _metadata(other):
        return False
    return one.spec == other.spec or _plain(one) == _plain(other)


def template_hash(template: PodTemplateSpec, collisions: int) -> str:
    """Return a short hash of a template and the collision count."""
    tree = {"metadata": _metadata(template), "spec": msgspec.Raw(_plain(template))}
    return revision_hash(msgspec.Raw(msgspec.json.encode(tree, order="sorted")), collisions)


def new_replica_set(deployment: Deployment, hash_: str, replicas: int, annotations: Mapping[str, str]) -> ReplicaSet:
    """Return the replica set to create for the present template of a deployment."""
    meta, spec = deployment.metadata, deployment.spec
    labels = {**(spec.template.metadata.labels or {}), HASH: hash_}
    template = replace(spec.template, metadata=replace(spec.template.metadata, labels=labels))
    selector = replace(spec.selector, match_labels={**(spec.selector.match_labels or {}), HASH: hash_})
    return ReplicaSet(
        metadata=ObjectMeta(
            namespace=meta.namespace,
            name=f"{meta.name[: _LONGEST_NAME - 1 - len(hash_)]}-{hash_}",
            labels=labels,
            annotations=annotations,
            owner_references=(controller_ref(DEPLOYMENTS, deployment),),
        ),
        spec=ReplicaSetSpec(
            replicas=replicas, min_ready_seconds=spec.min_ready_seconds, selector=selector, template=template
        ),
    )


def without_hash(template: PodTemplateSpec) -> PodTemplateSpec:
    """Return the template without the hash label, as in the deployment."""
    labels = {key: value for key, value in (template.metadata.labels or {}).items() if key != HASH}
    return replace(template, metadata=replace(template.metadata, labels=labels or None))


def _metadata(template: PodTemplateSpec) -> ObjectMeta:
    meta = without_hash(template).metadata
    return replace(meta, annotations=meta.annotations or None, creation_timestamp=None, managed_fields=EMPTY_RAW)


def _plain(template: PodTemplateSpec) -> bytes:
    """Return the spec of a template in a normalized form, in JSON."""
    return _plain_spec(bytes(template.spec)) if template.spec else b"null"


# Each step of a rollout compares the same few templates.
@lru_cache(maxsize=256)
def _plain_spec(spec: bytes) -> bytes:
    return msgspec.json.encode(_same_form(msgspec.json.decode(spec)), order="sorted")


def _same_form(value: Any, field: str = "") -> Any:
    match value:
        case dict():
            inner = field if field in _QUANTITIES else ""
            items = ((key, _same_form(each, inner or key)) for key, each in value.items())
            return {key: each for key, each in items if each is not None and each != []}
        case list():
            return [_same_form(each) for each in value]
        case str() if field in _QUANTITY or field in _QUANTITIES:
            return _quantity(value)
    return value


def _quantity(text: str) -> str:
    try:
        return canonical(text)
    except ValueError:
        return text
