"""Recycler pods, which empty released volumes: their specs and states."""

from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from controller_manager.common.api.core import PODS, Pod
from controller_manager.common.api.storage import PersistentVolume

from ..shared.claims import size_of
from ..shared.volume_plugins import HOST_PATH, NFS

_PREFIX = "recycler-for-"
_GI = 1024**3
_SOURCES = {HOST_PATH: ("hostPath", "host_path", ("path",)), NFS: ("nfs", "nfs", ("server", "path"))}

DEFAULT_TEMPLATE: Mapping[str, Any] = MappingProxyType(
    {
        "metadata": {"namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "volumes": [{"name": "vol"}],
            "containers": [
                {
                    "name": "pv-recycler",
                    "image": "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6",
                    "command": ["/bin/sh"],
                    "args": ["-c", 'find /scrub -mindepth 1 -delete && [ -z "$(ls -A /scrub)" ]'],
                    "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
                }
            ],
        },
    }
)


class Recycling(NamedTuple):
    """How volumes of a plugin are recycled: the pod template, the minimum timeout and seconds per GiB."""

    template: Mapping[str, Any]
    minimum: int
    increment: int


class Progress(Enum):
    """The state of a recycler pod."""

    NONE = auto()
    """The pod does not exist."""
    FOREIGN = auto()
    """The pod was created by a user or a previous manager. Its result is unknown."""
    RUNNING = auto()
    DONE = auto()
    FAILED = auto()


def template_from(file: str) -> Mapping[str, Any]:
    """Return the pod template in a JSON or YAML file. Raises OSError, or ValueError if it is not a pod with a
    volume.
    """
    from controller_manager.common.base.plain_yaml import read_yaml, without_nulls  # most managers read no such file

    found = without_nulls(read_yaml(Path(file).read_bytes()))
    if not isinstance(found, dict) or not isinstance(found.get("spec"), dict) or found.get("kind", "Pod") != "Pod":
        raise ValueError("it is not a pod")
    volumes = found["spec"].get("volumes")
    if not isinstance(volumes, list) or not volumes or not isinstance(volumes[0], dict):
        raise ValueError("spec.volumes: the pod has no volume")
    try:
        Pod.decode(msgspec.json.encode(found))
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return found


def pod_name(volume: str) -> str:
    """Return the name of the recycler pod of a volume."""
    return f"{_PREFIX}{volume}"


def volume_name(pod: str) -> str:
    """Return the volume of a recycler pod, or an empty string for other names."""
    return pod.removeprefix(_PREFIX) if pod.startswith(_PREFIX) else ""


def timeout(recycling: Recycling, volume: PersistentVolume) -> int:
    """Return the timeout in seconds for recycling a volume."""
    whole = int(size_of(volume.spec.capacity)) // _GI
    return max(recycling.minimum, whole * recycling.increment)


def namespace_of(recycling: Recycling) -> str:
    """Return the namespace of the pods."""
    return str(recycling.template.get("metadata", {}).get("namespace", "default"))


def recycler_pod(recycling: Recycling, volume: PersistentVolume, plugin: str) -> Pod:
    """Return the recycler pod of a volume."""
    field, attribute, names = _SOURCES[plugin]
    source = msgspec.json.decode(bytes(getattr(volume.spec, attribute)))
    spec, metadata = recycling.template["spec"], recycling.template.get("metadata", {})
    first = {"name": spec["volumes"][0].get("name", ""), field: {name: source.get(name, "") for name in names}}
    tree = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            **{key: value for key, value in metadata.items() if key != "generateName"},
            "namespace": namespace_of(recycling),
            "name": pod_name(volume.metadata.name),
        },
        "spec": {
            **spec,
            "activeDeadlineSeconds": timeout(recycling, volume),
            "volumes": [first, *spec["volumes"][1:]],
        },
    }
    return Pod.decode(msgspec.json.encode(tree))


def progress_of(pod: Pod | None, made: str) -> Progress:
    """Return the state of a pod. `made` is the uid of the pod that this process created for the volume, if any."""
    if pod is None:
        return Progress.NONE
    if pod.metadata.uid != made:
        return Progress.FOREIGN
    match pod.status.phase:
        case "Succeeded":
            return Progress.DONE
        case "Failed":
            return Progress.FAILED
    return Progress.RUNNING
