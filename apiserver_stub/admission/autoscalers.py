"""No autoscaler may take the last replicas of its target, unless a feature gate lets it (KEP-2021)."""

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.kinds.trees import get_in
from controller_manager.api.errors import Cause, invalid

_LOWEST = ("spec", "minReplicas")
_WHY = "Invalid value: 0: must be greater than or equal to 1"


async def refuse_scale_to_zero(attributes: Attributes) -> None:
    """Refuse an autoscaler that would scale to zero; one that already may can still be changed otherwise."""
    kind, old = attributes.kind, attributes.old_object
    if get_in(attributes.object, _LOWEST) == 0 and (old is None or get_in(old, _LOWEST) != 0):
        cause = Cause(reason="FieldValueInvalid", message=_WHY, field="spec.minReplicas")
        raise invalid(kind.group, kind.kind, attributes.name, [cause])
