"""Validation of workloads: replica counts, selectors that match their templates, update strategies."""

from collections.abc import Callable, Iterable
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    ChangeRule,
    KindRules,
    ValueRule,
    at_least,
    both,
    changes,
    each,
    fixed,
    form,
    if_any,
    need,
    nothing,
    record,
    within,
)
from apiserver_stub.kinds.rules.formats import LABEL, NOT_NEGATIVE, SHARE, amount, is_none
from apiserver_stub.kinds.rules.pod import pod_template
from apiserver_stub.kinds.rules.selectors import SELECTOR, is_empty, is_readable, selects
from apiserver_stub.kinds.rules.volumes import CLAIM_SPEC
from apiserver_stub.kinds.values.trees import get_in, same_but
from controller_manager.common.api.tree import Tree

_NOT_MATCHING = "`selector` does not match template `labels`"
_STATEFUL_MAY_CHANGE = (
    "minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "replicas", "revisionHistoryLimit",
    "template", "updateStrategy",
)  # fmt: skip
_STATEFUL_FROZEN = f"updates to statefulset spec for fields other than {', '.join(_STATEFUL_MAY_CHANGE)} are forbidden"
_COUNTS = dict.fromkeys(("replicas", "minReadySeconds"), at_least(0))
_HISTORY: dict[str, ValueRule] = {"revisionHistoryLimit": at_least(0)}


def _matching(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that the selector matches the template's labels. A missing selector matches nothing."""
    selector, template = spec.get("selector"), spec.get("template") or {}
    values = get_in(template, ("metadata", "labels")) or {}
    if selector is None or (is_readable(selector) and not selects(selector, values)):
        errors.invalid((((at, "template"), "metadata"), "labels"), values, _NOT_MATCHING)


def selecting(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check that there is a selector and that it matches the template's labels."""
    if spec.get("selector") is None:
        errors.required((at, "selector"), "says which Pods are meant")
    _matching(spec, at, errors)


def _of_labels(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the same for a selector that is a plain map of labels, whose format is not checked."""
    wanted, values = spec.get("selector") or {}, get_in(spec, ("template", "metadata", "labels")) or {}
    if not wanted.items() <= values.items() and spec.get("template") is not None:
        errors.invalid((((at, "template"), "metadata"), "labels"), values, _NOT_MATCHING)


def _selective(selector: Any, at: FieldPath, errors: ErrorList) -> None:
    SELECTOR(selector, at, errors)
    if is_empty(selector):
        errors.invalid(at, selector, "must not be empty")


def _readable(selector: Any, at: FieldPath, errors: ErrorList) -> None:
    if not is_readable(selector):
        errors.invalid(at, selector, "is no selector")


def _template(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    template, here = spec.get("template"), (at, "template")
    if template is None:
        errors.required(here)
        return
    claims = (claim.get("metadata") or {} for claim in spec.get("volumeClaimTemplates") or ())
    pod_template("Always", claimed=[metadata.get("name", "") for metadata in claims])(template, here, errors)
    if (template.get("spec") or {}).get("activeDeadlineSeconds") is not None:
        errors.forbidden(((here, "spec"), "activeDeadlineSeconds"), "only Pods that end have a deadline")


def _template_of_readable(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the template only if the selector is valid."""
    if spec.get("selector") is None or is_readable(spec["selector"]):
        _template(spec, at, errors)


def _stateful_template(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Check the template of a StatefulSet without `hostname` and `subdomain`, which the StatefulSet sets itself."""
    inner = get_in(spec, ("template", "spec"))
    if inner and ("hostname" in inner or "subdomain" in inner):
        inner = {name: value for name, value in inner.items() if name not in ("hostname", "subdomain")}
        spec = {**spec, "template": {**spec["template"], "spec": inner}}
    _template_of_readable(spec, at, errors)


def _workload(rows: dict[str, ValueRule], *whole: ValueRule, template: ValueRule = _template_of_readable) -> ValueRule:
    selector = both(_selective, _readable)
    return record({**_COUNTS, "selector": selector, **rows}, selecting, template, *whole)


def _progress(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds", 0)
    if deadline is not None and deadline <= ready and deadline >= 0:
        errors.invalid((at, "progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds")


def _moves(rolling: Any, at: FieldPath, errors: ErrorList) -> None:
    spare, extra = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    if spare is not None and extra is not None and is_none(spare) and is_none(extra):
        errors.invalid((at, "maxUnavailable"), spare, "may not be 0 when `maxSurge` is 0")


def _one_way(rolling: Any, at: FieldPath, errors: ErrorList) -> None:
    spare, extra = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    if is_none(spare) and is_none(extra):
        errors.required((at, "maxUnavailable"), "cannot be 0 when maxSurge is 0")
    elif not is_none(spare) and not is_none(extra):
        errors.invalid((at, "maxSurge"), extra, "may not be set when maxUnavailable is non-zero")


def _strategy(
    rolling: ValueRule, other: str, details_beside: ValueRule | None, unknown: Callable[..., None]
) -> ValueRule:
    """Return a rule for the update strategy: rolling, with optional details, or `other`, which allows no details.

    `details_beside` is the error for details of another type, `unknown` that for an unknown type.
    """

    def rule(strategy: Any, at: FieldPath, errors: ErrorList) -> None:
        details, kind, here = strategy.get("rollingUpdate"), strategy.get("type"), (at, "rollingUpdate")
        if kind not in (other, "RollingUpdate"):
            unknown(errors, at, kind, (other, "RollingUpdate"))
        elif details is not None and kind == other:
            (details_beside or nothing)(details, here, errors)
        elif details is not None:
            rolling(details, here, errors)

    return rule


def _not_beside(_details: Any, at: FieldPath, errors: ErrorList) -> None:
    errors.forbidden(at, "may not be specified when strategy `type` is 'Recreate'")


def _not_for(details: Any, at: FieldPath, errors: ErrorList) -> None:
    errors.invalid(at, details, "only allowed for updateStrategy 'RollingUpdate'")


def _no_way(errors: ErrorList, at: FieldPath, kind: str, ways: Iterable[str]) -> None:
    errors.invalid(at, kind, f"must be {' or '.join(ways)}")


def _pod_management(policy: str) -> str:
    return "" if policy in ("OrderedReady", "Parallel") else "must be OrderedReady or Parallel"


_AMOUNTS: dict[str, ValueRule] = {"maxUnavailable": SHARE, "maxSurge": amount}
_DEPLOYMENT = _workload({
    **_HISTORY,
    "progressDeadlineSeconds": at_least(0),
    "strategy": _strategy(record(_AMOUNTS, _moves), "Recreate", _not_beside, ErrorList.unsupported),
}, _progress)  # fmt: skip
_DAEMON_SET = record({
    **_COUNTS,
    **_HISTORY,
    "selector": _selective,
    "updateStrategy": _strategy(
        record({**_AMOUNTS, "maxSurge": SHARE}, _one_way), "OnDelete", None, ErrorList.unsupported,
    ),
}, _matching, _template)  # fmt: skip
_STATEFUL_SET = _workload({
    "ordinals": record({"start": at_least(0)}),
    "podManagementPolicy": form(_pod_management),
    "updateStrategy": _strategy(
        record({"partition": at_least(0), "maxUnavailable": SHARE}), "OnDelete", _not_for, _no_way,
    ),
}, template=_stateful_template)  # fmt: skip
_NEW_STATEFUL_SET = within("spec", record({
    "serviceName": if_any(LABEL), "volumeClaimTemplates": each(record({"spec": CLAIM_SPEC})),
}))  # fmt: skip
_CONTROLLER = record(_COUNTS, need("selector", "template"), _of_labels, _template)


def _stateful_change(new: Tree, old: Tree, errors: ErrorList) -> None:
    if not same_but(_STATEFUL_MAY_CHANGE, new.get("spec") or {}, old.get("spec") or {}):
        errors.forbidden((None, "spec"), _STATEFUL_FROZEN)


def _counts(*names: str) -> ChangeRule:
    """Return a rule that status counts are not negative and that some are not greater than the replica count."""
    at = place("status")

    def change(new: Tree, _old: Tree, errors: ErrorList) -> None:
        status = new.get("status") or {}
        for name, count in status.items():
            if type(count) is int and count < 0:
                errors.invalid((at, name), count, NOT_NEGATIVE)
        for name in names:
            if (count := status.get(name, 0)) > status.get("replicas", 0):
                errors.invalid((at, name), count, "cannot be greater than status.replicas")

    return change


def _ready(new: Tree, _old: Tree, errors: ErrorList) -> None:
    status = new.get("status") or {}
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        at = place("status.availableReplicas")
        errors.invalid(at, status.get("availableReplicas", 0), "cannot be greater than readyReplicas")


_REPLICAS = changes(_counts("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), _ready)
_DEPLOYED = changes(_counts("updatedReplicas", "readyReplicas", "availableReplicas"), _ready)
_ORDERED = changes(_counts("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"), _ready)
_SELECTOR = fixed("spec.selector")
_NO_SPEC: Tree = {"template": {"spec": {}}}
RULES = {
    "apps/v1/Deployment": KindRules(
        change=_SELECTOR, subresources={"status": _DEPLOYED}, spec=_DEPLOYMENT, no_spec=_NO_SPEC,
    ),
    "apps/v1/ReplicaSet": KindRules(
        change=_SELECTOR, subresources={"status": _REPLICAS}, spec=_workload({}), no_spec=_NO_SPEC,
    ),
    "apps/v1/DaemonSet": KindRules(
        change=_SELECTOR, subresources={"status": _counts()}, spec=_DAEMON_SET, no_spec=_NO_SPEC,
    ),
    "apps/v1/StatefulSet": KindRules(
        change=_stateful_change, subresources={"status": _ORDERED}, on_create=_NEW_STATEFUL_SET, spec=_STATEFUL_SET,
        no_spec=_NO_SPEC,
    ),
    "v1/ReplicationController": KindRules(subresources={"status": _REPLICAS}, spec=_CONTROLLER, no_spec=_NO_SPEC),
}  # fmt: skip
