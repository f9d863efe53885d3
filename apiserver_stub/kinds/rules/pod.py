"""The rules of Pods, and of the templates of Pods."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath, key, place
from apiserver_stub.kinds.rules.combine import Change, KindRules, Rule, never, within
from apiserver_stub.kinds.rules.metadata import TEMPLATE
from apiserver_stub.kinds.rules.pod_change import change, change_ephemeral, change_status, resize
from apiserver_stub.kinds.rules.pod_spec import pod_spec
from apiserver_stub.kinds.schema import Tree

_SPEC: FieldPath = (None, "spec")
_COST = "controller.kubernetes.io/pod-deletion-cost"
_LATER = "cannot be set on create"
_MIRROR = "kubernetes.io/config.mirror"
_ANNOTATIONS = place("metadata.annotations")


def _pod(pod: Any, _at: FieldPath, errors: ErrorList) -> None:
    spec = pod.get("spec")
    if spec is None:
        errors.required(_SPEC)
        return
    pod_spec(spec, _SPEC, errors)
    for name in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(name) or ()):
            image = container.get("image", "")
            if image != image.strip():
                why = "must not have leading or trailing whitespace"
                errors.invalid((((_SPEC, name), index), "image"), image, why)
    annotations = (pod.get("metadata") or {}).get("annotations")
    if annotations:
        _annotations(annotations, spec, errors)


def _annotations(annotations: Mapping[str, str], spec: Tree, errors: ErrorList) -> None:
    cost = annotations.get(_COST, "0")
    digits = cost.removeprefix("-")
    if not (cost.isascii() and digits.isdigit() and len(digits) < 11 and -(2**31) <= int(cost) < 2**31):
        errors.invalid((_ANNOTATIONS, key(_COST)), cost, "must be a 32bit integer")
    if _MIRROR in annotations and not spec.get("nodeName"):
        why = "needs spec.nodeName"
        errors.invalid((_ANNOTATIONS, key(_MIRROR)), annotations[_MIRROR], why)


def pod_template(*policies: str, claimed: Iterable[str] = ()) -> Rule:
    """Return a template whose Pods may have one of the restart policies; any when none is named."""

    def rule(template: Any, at: FieldPath, errors: ErrorList) -> None:
        if "metadata" in template:
            TEMPLATE(template["metadata"], at, errors)
        spec, here = template.get("spec"), (at, "spec")
        if spec is None:
            errors.required((here, "containers"))
            return
        pod_spec(spec, here, errors, claimed)
        policy = spec.get("restartPolicy")
        if policies and policy == "Always" and policy not in policies:
            errors.required((here, "restartPolicy"), f"must be one of {', '.join(policies)}")
        elif policies and policy and policy not in policies:
            errors.unsupported((here, "restartPolicy"), policy, policies)
        if spec.get("ephemeralContainers"):
            errors.forbidden((here, "ephemeralContainers"), "ephemeral containers not allowed in pod template")

    return rule


def _stored_template(tree: Any, _at: FieldPath, errors: ErrorList) -> None:
    pod_template()(tree.get("template") or {}, (None, "template"), errors)


_PARTS: Mapping[str, Change] = MappingProxyType({
    "status": change_status, "ephemeralcontainers": change_ephemeral, "resize": resize,
})  # fmt: skip
RULES = {
    "v1/Pod": KindRules(_pod, change, _PARTS, on_create=within("spec", never("ephemeralContainers", why=_LATER))),
    "v1/PodTemplate": KindRules(_stored_template),
}
