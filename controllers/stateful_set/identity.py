"""The identity of a stateful set's pod: ordinal, name, labels and volumes; pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.apps import STATEFUL_SETS, StatefulSet
from controller_manager.common.api.core import PersistentVolumeClaimTemplate, Pod, PodTemplateSpec
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.framework import pod_from_template

POD_NAME = f"statefulset.{PLATFORM_DOMAIN}/pod-name"
POD_INDEX = f"apps.{PLATFORM_DOMAIN}/pod-index"
REVISION = "controller-revision-hash"

_NAME = re.compile(r"(.*)-(0|[1-9][0-9]{0,9})", re.ASCII)
_LARGEST = (1 << 31) - 1


def ordinal_of(owner: StatefulSet, pod: Pod) -> int | None:
    """Return the ordinal in a pod's name, or None if the name does not belong to the set."""
    found = _NAME.fullmatch(pod.metadata.name)
    if found is None or found[1] != owner.metadata.name or int(found[2]) > _LARGEST:
        return None
    return int(found[2])


def ordinals(owner: StatefulSet) -> range:
    """Return the desired ordinals of a set."""
    start = owner.spec.ordinals.start
    return range(start, start + owner.spec.replicas)


def pod_name(owner: StatefulSet, ordinal: int) -> str:
    """Return the name of the pod of an ordinal."""
    return f"{owner.metadata.name}-{ordinal}"


def claim_name(owner: StatefulSet, template: PersistentVolumeClaimTemplate, ordinal: int) -> str:
    """Return the name of the claim of an ordinal for one of the claim templates."""
    return f"{template.metadata.name}-{owner.metadata.name}-{ordinal}"


def claim_names(owner: StatefulSet, ordinal: int) -> Iterator[tuple[str, str]]:
    """Yield the volume name and the claim name of an ordinal for each claim template."""
    for template in owner.spec.volume_claim_templates:
        yield template.metadata.name, claim_name(owner, template, ordinal)


def revision_of(pod: Pod) -> str:
    """Return the revision name in a pod's label, or an empty string."""
    return (pod.metadata.labels or {}).get(REVISION, "")


def new_pod(owner: StatefulSet, template: PodTemplateSpec, ordinal: int, revision: str) -> Pod:
    """Return the pod to create for an ordinal, from the template of a revision.

    A volume of a claim template replaces a volume of the same name in the pod template.
    """
    name = pod_name(owner, ordinal)
    spec: dict[str, Any] = (msgspec.json.decode(template.spec) if bytes(template.spec) else None) or {}
    claimed = _volumes(owner, ordinal)
    names = {one["name"] for one in claimed}
    volumes = [*claimed, *(one for one in spec.get("volumes") or () if one.get("name") not in names)]
    spec = {**spec, "hostname": name, "subdomain": owner.spec.service_name, "volumes": volumes}
    labels = {**(template.metadata.labels or {}), **labels_of(owner, ordinal), REVISION: revision}
    meta = replace(template.metadata, labels=labels)
    completed = PodTemplateSpec(metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec)))
    pod = pod_from_template(STATEFUL_SETS, owner, completed, name=name)
    return replace(pod, metadata=replace(pod.metadata, generate_name=f"{owner.metadata.name}-"))


def labels_of(owner: StatefulSet, ordinal: int) -> Mapping[str, str]:
    """Return the labels with which a service can select the pod of an ordinal."""
    return {POD_NAME: pod_name(owner, ordinal), POD_INDEX: str(ordinal)}


def identity_patch(owner: StatefulSet, pod: Pod, ordinal: int) -> Mapping[str, Any]:
    """Return the strategic merge patch that corrects the identity and the volumes of a pod.

    It is empty if they are correct, as for all pods that this controller created. Adopted pods may differ.
    """
    is_named = (pod.metadata.labels or {}).get(POD_NAME) == pod.metadata.name
    known = {one.name: one.persistent_volume_claim for one in pod.spec.volumes}
    sources = ((name, claim, known.get(name)) for name, claim in claim_names(owner, ordinal))
    lacks_claim = any(source is None or source.claim_name != claim for _, claim, source in sources)
    identity = {} if is_named else {"metadata": {"labels": labels_of(owner, ordinal)}}
    return {**identity, **({"spec": {"volumes": _volumes(owner, ordinal)}} if lacks_claim else {})}


def _volumes(owner: StatefulSet, ordinal: int) -> list[dict[str, Any]]:
    """Return the volumes of the claims of an ordinal."""
    return [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claim_names(owner, ordinal)
    ]
