"""The rules of what keeps Pods running: replica counts, selectors that match their templates, ways to roll out."""

from typing import Any

from apiserver_stub.kinds.error_list import ErrorList, FieldPath, place
from apiserver_stub.kinds.rules.combine import (
    Change,
    KindRules,
    Rule,
    at_least,
    changes,
    fixed,
    form,
    if_any,
    need,
    record,
)
from apiserver_stub.kinds.rules.formats import NOT_NEGATIVE, SHARE, SUBDOMAIN, amount, is_none
from apiserver_stub.kinds.rules.metadata import labels
from apiserver_stub.kinds.rules.pod import pod_template
from apiserver_stub.kinds.rules.selectors import SELECTOR, is_empty, is_readable, selects
from apiserver_stub.kinds.schema import Tree
from apiserver_stub.kinds.trees import get_in, same_but

_NOT_MATCHING = "`selector` does not match template `labels`"
_STATEFUL_MAY_CHANGE = (
    "minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "replicas", "revisionHistoryLimit",
    "template", "updateStrategy",
)  # fmt: skip
_STATEFUL_FROZEN = f"updates to statefulset spec for fields other than {', '.join(_STATEFUL_MAY_CHANGE)} are forbidden"
_COUNTS = dict.fromkeys(("replicas", "minReadySeconds"), at_least(0))
_HISTORY: dict[str, Rule] = {"revisionHistoryLimit": at_least(0)}


def matching(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """The selector picks the Pods of the template."""
    selector, template = spec.get("selector"), spec.get("template")
    if not selector or template is None or not is_readable(selector):
        return
    values = get_in(template, ("metadata", "labels")) or {}
    if not selects(selector, values):
        errors.invalid((((at, "template"), "metadata"), "labels"), values, _NOT_MATCHING)


def _selected(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    """Without a selector nothing is selected."""
    if spec.get("selector") is None:
        values = get_in(spec, ("template", "metadata", "labels")) or {}
        errors.invalid((((at, "template"), "metadata"), "labels"), values, _NOT_MATCHING)


def _selective(selector: Any, at: FieldPath, errors: ErrorList) -> None:
    SELECTOR(selector, at, errors)
    if not is_readable(selector):
        errors.invalid(at, selector, "is no selector")
    if is_empty(selector):
        errors.invalid(at, selector, "must not be empty")


def _template(spec: Any, at: FieldPath, errors: ErrorList) -> None:
    template, here = spec.get("template"), (at, "template")
    if template is None:
        errors.required(here)
        return
    claims = (claim.get("metadata") or {} for claim in spec.get("volumeClaimTemplates") or ())
    pod_template("Always", claimed=[metadata.get("name", "") for metadata in claims])(template, here, errors)
    if (template.get("spec") or {}).get("activeDeadlineSeconds") is not None:
        errors.forbidden(((here, "spec"), "activeDeadlineSeconds"), "only Pods that end have a deadline")


def _needs_spec(rule: Rule) -> Rule:
    def whole(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        rule(tree.get("spec") or {"template": {"spec": {}}}, (at, "spec"), errors)

    return whole


def _workload(rows: dict[str, Rule], *whole: Rule) -> Rule:
    judge = record({**_COUNTS, "selector": _selective, **rows}, _selected, matching, _template, *whole)
    return _needs_spec(judge)


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
    if is_none(spare) and is_none(extra) and spare is not None:
        errors.required((at, "maxUnavailable"), "cannot be 0 when maxSurge is 0")
    elif not is_none(spare) and not is_none(extra):
        errors.invalid((at, "maxSurge"), extra, "may not be set when maxUnavailable is non-zero")


def _strategy(rolling: Rule, why: str, other: str) -> Rule:
    """Return how changes are rolled out: step by step, where the details of that belong, or in one `other` way."""

    def rule(strategy: Any, at: FieldPath, errors: ErrorList) -> None:
        details, kind = strategy.get("rollingUpdate"), strategy.get("type")
        if kind and kind not in (other, "RollingUpdate"):
            errors.unsupported(at, kind, (other, "RollingUpdate"))
        elif details is None:
            return
        elif kind == other:
            errors.forbidden((at, "rollingUpdate"), why)
        else:
            rolling(details, (at, "rollingUpdate"), errors)

    return rule


def _pod_management(policy: str) -> str:
    return "" if policy in ("OrderedReady", "Parallel") else "must be OrderedReady or Parallel"


_AMOUNTS: dict[str, Rule] = {"maxUnavailable": SHARE, "maxSurge": amount}
_DEPLOYMENT = _workload({
    **_HISTORY,
    "progressDeadlineSeconds": at_least(0),
    "strategy": _strategy(
        record(_AMOUNTS, _moves), "may not be specified when strategy `type` is 'Recreate'", "Recreate",
    ),
}, _progress)  # fmt: skip
_DAEMON_SET = _workload({
    **_HISTORY,
    "updateStrategy": _strategy(
        record({**_AMOUNTS, "maxSurge": SHARE}, _one_way), "only allowed for updateStrategy 'RollingUpdate'",
        "OnDelete",
    ),
})  # fmt: skip
_STATEFUL_SET = _workload({
    "ordinals": record({"start": at_least(0)}),
    "serviceName": if_any(SUBDOMAIN),
    "podManagementPolicy": form(_pod_management),
    "updateStrategy": _strategy(
        record({"partition": at_least(0), "maxUnavailable": SHARE}), "only allowed for updateStrategy 'RollingUpdate'",
        "OnDelete",
    ),
})  # fmt: skip
_CONTROLLER = _needs_spec(record({**_COUNTS, "selector": labels}, need("selector", "template"), matching, _template))


def _stateful_change(new: Tree, old: Tree, errors: ErrorList) -> None:
    if not same_but(_STATEFUL_MAY_CHANGE, new.get("spec") or {}, old.get("spec") or {}):
        errors.forbidden((None, "spec"), _STATEFUL_FROZEN)


def _counts(*names: str, whole: str = "replicas") -> Change:
    """Return the rule that counts of a status are not negative, and not greater than the whole."""
    at = place("status")

    def change(new: Tree, _old: Tree, errors: ErrorList) -> None:
        status = new.get("status") or {}
        total = status.get(whole, 0)
        for name in (whole, *names):
            count = status.get(name, 0)
            if count < 0:
                errors.invalid((at, name), count, NOT_NEGATIVE)
            elif name != whole and count > total:
                errors.invalid((at, name), count, f"cannot be greater than status.{whole}")

    return change


def _ready(new: Tree, _old: Tree, errors: ErrorList) -> None:
    status = new.get("status") or {}
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        at = place("status.availableReplicas")
        errors.invalid(at, status.get("availableReplicas", 0), "cannot be greater than readyReplicas")


_REPLICAS = changes(_counts("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), _ready)
_DEPLOYED = changes(_counts("updatedReplicas", "readyReplicas", "availableReplicas"), _ready)
_SELECTOR = fixed("spec.selector")
RULES = {
    "apps/v1/Deployment": KindRules(_DEPLOYMENT, _SELECTOR, {"status": _DEPLOYED}),
    "apps/v1/ReplicaSet": KindRules(_workload({}), _SELECTOR, {"status": _REPLICAS}),
    "apps/v1/DaemonSet": KindRules(_DAEMON_SET, _SELECTOR),
    "apps/v1/StatefulSet": KindRules(_STATEFUL_SET, _stateful_change, {"status": _counts(
        "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
    )}),
    "v1/ReplicationController": KindRules(_CONTROLLER, subresources={"status": _REPLICAS}),
}  # fmt: skip
