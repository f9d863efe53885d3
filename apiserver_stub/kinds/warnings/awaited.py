"""Warnings of objects that are kept, and that this server does not act upon yet: each goes when that is built."""

from collections.abc import Mapping
from types import MappingProxyType

from apiserver_stub.kinds.resource_info import Warn
from apiserver_stub.kinds.schema import Tree


def _without_effect(what: str) -> Warn:
    text = f"this server keeps the object and does not act upon it yet: {what}"

    def warn(new: Tree, old: Tree | None) -> list[str]:
        changed = old is None or new["metadata"].get("generation") != old["metadata"].get("generation")
        return [text] if changed else []

    return warn


_WEBHOOKS = _without_effect("no webhook is called")
_POLICIES = _without_effect("no policy is applied")

AWAITED: Mapping[str, Warn] = MappingProxyType({
    "apiextensions.k8s.io/v1/CustomResourceDefinition": _without_effect("the kind it defines is not served"),
    "apiregistration.k8s.io/v1/APIService": _without_effect("no request is passed on to another server"),
    "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration": _WEBHOOKS,
    "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration": _WEBHOOKS,
    "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy": _POLICIES,
    "admissionregistration.k8s.io/v1/MutatingAdmissionPolicyBinding": _POLICIES,
    "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy": _POLICIES,
    "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding": _POLICIES,
})  # fmt: skip
