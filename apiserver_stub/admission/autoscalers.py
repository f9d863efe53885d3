"""No autoscaler may take the last replicas of its target, unless a feature gate lets it (KEP-2021)."""

from apiserver_stub.admission.chain import AdmissionRequest
from apiserver_stub.kinds.trees import get_in
from controller_manager.api.errors import Cause, invalid

_LOWEST = ("spec", "minReplicas")
_WHY = "Invalid value: 0: must be greater than or equal to 1"


def refuse_scale_to_zero(request: AdmissionRequest) -> None:
    """Refuse an autoscaler that would scale to zero; one that already may can still be changed otherwise."""
    kind, tree, old = request.kind, request.tree, request.old
    if kind.storage != "horizontalpodautoscalers.autoscaling" or request.subresource or request.operation == "delete":
        return
    if get_in(tree, _LOWEST) == 0 and (old is None or get_in(old, _LOWEST) != 0):
        cause = Cause(reason="FieldValueInvalid", message=_WHY, field="spec.minReplicas")
        raise invalid(kind.group, kind.kind, request.name, [cause])
