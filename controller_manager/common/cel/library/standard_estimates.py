"""Static cost estimates for operators and standard functions; their run-time costs are next to the functions."""

from collections.abc import Mapping
from types import MappingProxyType

from controller_manager.common.cel.library import STRING_TRAVERSAL, UNBOUNDED, CallEstimate, CallEstimator, Estimate
from controller_manager.common.cel.library.costs import ONE, Operands, match_estimate
from controller_manager.common.cel.types import Kind


def _concatenation(operands: Operands) -> CallEstimate:
    size = operands[0].size.plus(operands[1].size)
    return CallEstimate(size.scaled(STRING_TRAVERSAL), size)


def _list_concatenation(operands: Operands) -> CallEstimate:
    return CallEstimate(ONE, operands[0].size.plus(operands[1].size))


def _comparison(operands: Operands) -> CallEstimate:
    most = min(operands[0].size.max, operands[1].size.max)
    return CallEstimate(Estimate(1 if most > 0 else 0, most).scaled(STRING_TRAVERSAL))


def _equality(operands: Operands) -> CallEstimate:
    left, right = operands
    if left.type == right.type and left.type.kind in (Kind.OPAQUE, Kind.STRUCT):
        name = left.type.name
        if name == "kubernetes.NamedFormat":
            return CallEstimate(Estimate(1, 64).scaled(STRING_TRAVERSAL))
        if name == "kubernetes.URL":
            most = 1 if right.computed_size is None else right.computed_size.max
            return CallEstimate(Estimate(1, most).scaled(STRING_TRAVERSAL))
        if name.startswith(("kubernetes.", "net.")):
            return CallEstimate(ONE)
    return _comparison(operands)


def _affix(operands: Operands) -> CallEstimate:
    """Estimate a test of each character of a prefix or suffix."""
    return CallEstimate(operands[-1].size.scaled(STRING_TRAVERSAL))


def _to_bytes(operands: Operands) -> CallEstimate:
    size = operands[0].size
    return CallEstimate(size.scaled(STRING_TRAVERSAL), Estimate(size.min, size.max * 4 & UNBOUNDED))


def _to_string(operands: Operands) -> CallEstimate:
    size = operands[0].size
    return CallEstimate(size.scaled(STRING_TRAVERSAL), Estimate(size.min // 4, size.max))


def _membership(operands: Operands) -> CallEstimate:
    return CallEstimate(operands[1].size)


def _match(operands: Operands) -> CallEstimate:
    return CallEstimate(match_estimate(operands[0].size, operands[1].size))


def _containment(operands: Operands) -> CallEstimate:
    text, part = (operand.size.scaled(STRING_TRAVERSAL) for operand in operands)
    return CallEstimate(text.times(part))


# By overload id.
STANDARD_ESTIMATES: Mapping[str, CallEstimator] = MappingProxyType(
    {
        "add_string": _concatenation,
        "add_bytes": _concatenation,
        "add_list": _list_concatenation,
        "string_to_bytes": _to_bytes,
        "bytes_to_string": _to_string,
        "starts_with_string": _affix,
        "ends_with_string": _affix,
        "in_list": _membership,
        "matches_string": _match,
        "contains_string": _containment,
        "equals": _equality,
        "not_equals": _comparison,
        **{
            f"{relation}_{kind}": _comparison
            for relation in ("less", "less_equals", "greater", "greater_equals")
            for kind in ("string", "bytes")
        },
    }
)
