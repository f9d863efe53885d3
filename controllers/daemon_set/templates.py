"""Builds the pods of a daemon set, and checks which pods have the present template; pure."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.apps import DAEMON_SETS, DaemonSet
from controller_manager.common.api.core import Pod, PodTemplateSpec
from controller_manager.common.api.scheduling import affinity_to
from controller_manager.framework import pod_from_template

from .placement import placement_of

# The label with the hash of the template, and the deprecated one with its generation.
HASH = "controller-revision-hash"
GENERATION = "pod-template-generation"
_GENERATION_OF_SET = "deprecated.daemonset.template.generation"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_INTEGER = re.compile(r"[-+]?[0-9]{1,100}", re.ASCII)
_INTEGERS = range(-(1 << 63), 1 << 63)


class DaemonTemplate:
    """The template of a daemon set whose revision has this hash. All its pods are built from it."""

    def __init__(self, daemon_set: DaemonSet, hash_: str) -> None:
        template, generation = daemon_set.spec.template, generation_of(daemon_set)
        numbered = {GENERATION: generation} if generation else {}
        self._daemon_set = daemon_set
        self._meta = replace(template.metadata, labels={**(template.metadata.labels or {}), **numbered, HASH: hash_})
        tree: dict[str, Any] = (msgspec.json.decode(template.spec) if bytes(template.spec) else None) or {}
        self._spec = {**tree, "tolerations": msgspec.to_builtins(placement_of(daemon_set).tolerations)}

    def pod(self, node: str) -> Pod:
        """Return the pod for a node.

        Its required node affinity is replaced by one for this node, so that the scheduler binds it there.
        """
        affinity: Mapping[str, Any] = self._spec.get("affinity") or {}
        of_nodes = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: msgspec.to_builtins(affinity_to(node))}
        spec = {**self._spec, "affinity": {**affinity, "nodeAffinity": of_nodes}}
        template = PodTemplateSpec(metadata=self._meta, spec=msgspec.Raw(msgspec.json.encode(spec)))
        return pod_from_template(DAEMON_SETS, self._daemon_set, template)


def generation_of(daemon_set: DaemonSet) -> str:
    """Return the template generation for the label, or an empty string if the server does not count it."""
    text = (daemon_set.metadata.annotations or {}).get(_GENERATION_OF_SET, "")
    return str(int(text)) if _INTEGER.fullmatch(text) and int(text) in _INTEGERS else ""


def is_updated(pod: Pod, hash_: str, generation: str) -> bool:
    """Return whether a pod has the template with that hash or generation."""
    labels = pod.metadata.labels or {}
    return labels.get(HASH) == hash_ or (generation != "" and labels.get(GENERATION) == generation)
