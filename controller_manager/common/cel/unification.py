"""Which types fit where: type variables are bound to what they meet first, and widened where they must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from controller_manager.common.cel.types import (
    DYN,
    Kind,
    ListType,
    MapType,
    OpaqueType,
    OptionalType,
    Type,
    TypeParameter,
    TypeType,
    WrapperType,
    is_dyn,
)

_NULLABLE = frozenset({Kind.OPAQUE, Kind.STRUCT, Kind.ANY, Kind.DURATION, Kind.TIMESTAMP})
_COMPOSED = frozenset({Kind.OPAQUE, Kind.LIST, Kind.MAP, Kind.TYPE})
_SIMPLE = frozenset(
    {Kind.BOOL, Kind.BYTES, Kind.DOUBLE, Kind.INT, Kind.STRING, Kind.UINT, Kind.DURATION, Kind.TIMESTAMP, Kind.STRUCT}
)


@lru_cache(4096)
def parameters_of(types: tuple[Type, ...]) -> frozenset[str]:
    """Return the names of the type parameters in types."""
    names: set[str] = set()
    for one in types:
        if one.kind is Kind.TYPE_PARAM:
            names.add(one.name)
        elif one.parameters:
            names |= parameters_of(one.parameters)
    return frozenset(names)


def with_parameters(one: Type, replacements: Mapping[str, Type]) -> Type:
    """Return a type with type parameters replaced."""
    if one.kind is Kind.TYPE_PARAM:
        return replacements.get(one.name, one)
    if not one.parameters:
        return one
    return _composed(one, tuple(with_parameters(inner, replacements) for inner in one.parameters))


def _composed(like: Type, parameters: tuple[Type, ...]) -> Type:
    if all(new is old for new, old in zip(parameters, like.parameters, strict=True)):
        return like
    if like.kind is Kind.LIST:
        return ListType(parameters[0], like.max_elements, like.reader)
    if like.kind is Kind.MAP:
        return MapType(parameters[0], parameters[1], like.max_elements, like.reader)
    if like.kind is Kind.TYPE:
        return TypeType(*parameters)
    return OptionalType(parameters[0]) if like.name == "optional_type" else OpaqueType(like.name, *parameters)


class Bindings:
    """The types that type variables of one expression stand for."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []  # what was bound before, to go back to
        self._variables = 0

    def fresh(self) -> Type:
        """Return a type variable that is bound to nothing."""
        self._variables += 1
        return TypeParameter(f"_var{self._variables - 1}")

    def assignable(self, to: Type, given: Type) -> bool:
        """Return whether two types fit, and bind variables so that they do."""
        return self.assignable_all((to,), (given,))

    def assignable_all(self, left: Iterable[Type], right: Iterable[Type]) -> bool:
        """Return whether types fit in pairs; where they do not, nothing is bound."""
        begin = len(self._trail)
        if all(map(self._fits, left, right)):
            return True
        while len(self._trail) > begin:
            name, before = self._trail.pop()
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before
        return False

    def _bind(self, name: str, one: Type) -> None:
        self._trail.append((name, self._bound.get(name)))
        self._bound[name] = one

    def substituted(self, one: Type) -> Type:
        """Return a type with its bound variables replaced."""
        return self._replaced(one, unbound=False)

    def resolved(self, one: Type) -> Type:
        """Return a type with bound variables replaced, and those that are not by dyn."""
        return self._replaced(one, unbound=True)

    def _replaced(self, one: Type, unbound: bool) -> Type:
        if one.kind is Kind.TYPE_PARAM:
            bound = self._bound.get(one.name)
            if bound is not None:
                return self._replaced(bound, unbound)
            return DYN if unbound else one
        if not one.parameters:
            return one
        return _composed(one, tuple(self._replaced(inner, unbound) for inner in one.parameters))

    def _fits(self, left: Type, right: Type) -> bool:
        if right.kind is Kind.TYPE_PARAM:
            fits, bound = self._stands_for(left, right)
            if fits or bound:
                return fits
        if left.kind is Kind.TYPE_PARAM:
            return self._stands_for(right, left)[0]
        if is_dyn(left) or is_dyn(right) or left.kind is Kind.ERROR or right.kind is Kind.ERROR:
            return True
        if left.kind is Kind.NULL or right.kind is Kind.NULL:
            other = right if left.kind is Kind.NULL else left
            return other.kind in _NULLABLE or other.kind is Kind.NULL or isinstance(other, WrapperType)
        if left.kind is not right.kind:
            return False
        if left.kind in _SIMPLE:
            return left.name == right.name
        if left.kind is Kind.TYPE:
            return True
        return (
            left.name == right.name
            and len(left.parameters) == len(right.parameters)
            and all(map(self._fits, left.parameters, right.parameters))
        )

    def _stands_for(self, one: Type, variable: Type) -> tuple[bool, bool]:
        """Return whether a variable may stand for a type, and whether it stands for something already."""
        if one == variable:
            return True, True
        bound = self._bound.get(variable.name)
        if bound is not None:
            if one == bound:
                return True, True
            if not self._fits(one, bound):
                return False, True
            wider = self.more_general(one, bound)
            if self._absent(variable, wider):
                self._bind(variable.name, wider)
            return True, True
        if not self._absent(variable, one):
            return False, False
        self._bind(variable.name, one)
        return True, False

    def _absent(self, variable: Type, within: Type) -> bool:
        """Return whether a variable does not occur in a type."""
        if variable == within:
            return False
        if within.kind is Kind.TYPE_PARAM:
            bound = self._bound.get(within.name)
            return bound is None or self._absent(variable, bound)
        return within.kind not in _COMPOSED or all(self._absent(variable, inner) for inner in within.parameters)

    def more_general(self, one: Type, other: Type) -> Type:
        """Return the more general of two types that fit."""
        return one if _no_more_specific(one, other) else other


def _no_more_specific(one: Type, other: Type) -> bool:
    if is_dyn(one) or one.kind is Kind.TYPE_PARAM:
        return True
    if is_dyn(other) or other.kind is Kind.TYPE_PARAM or one.kind is not other.kind:
        return False
    if one.kind is Kind.TYPE:
        return True
    if one.kind in _COMPOSED:
        return (
            one.name == other.name
            and len(one.parameters) == len(other.parameters)
            and all(map(_no_more_specific, one.parameters, other.parameters))
        )
    return one == other
