"""Static cost estimation: the minimum and maximum cost of an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller_manager.common.cel.library import (
    LIST_BASE,
    MAP_BASE,
    STRUCT_BASE,
    UNBOUNDED,
    UNKNOWN_SIZE,
    CallEstimate,
    Estimate,
    Overload,
    fixed,
)
from controller_manager.common.cel.library.standard_estimates import STANDARD_ESTIMATES
from controller_manager.common.cel.sizes import EntrySizes, SizePath, Sizes, literal_size
from controller_manager.common.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
)
from controller_manager.common.cel.types import Kind, Type, is_scalar
from controller_manager.common.cel.values import ABSENT

_NOTHING = fixed(0)
_STEP = fixed(1)
_EMPTY = Estimate(UNBOUNDED, 0)  # the union of no sizes


class _Local:
    """Known sizes of a name in a comprehension."""

    __slots__ = ("entries", "path", "size")

    def __init__(self, path: SizePath, size: Estimate | None, entries: EntrySizes | None = None) -> None:
        self.path = path
        self.size = size
        self.entries = entries


class _Operand:
    """An operand for the estimators of libraries."""

    __slots__ = ("_sizes", "computed_size", "node", "path")

    def __init__(self, node: Node, path: SizePath, size: Estimate | None, sizes: Sizes | None) -> None:
        self.node = node
        self.path = path
        self.computed_size = size
        self._sizes = sizes

    @property
    def type(self) -> Type:
        return self.node.type

    @property
    def size(self) -> Estimate:
        return UNKNOWN_SIZE if self.computed_size is None else self.computed_size

    @property
    def element_size(self) -> Estimate:
        known = self._sizes((*self.path, "@items")) if self._sizes is not None and self.path else None
        return UNKNOWN_SIZE if known is None else known

    @property
    def literal(self) -> Any:
        return self.node.value if isinstance(self.node, Literal) else ABSENT


def estimate(tree: Node, sizes: Sizes | None = None) -> Estimate:
    """Return the cost range of a checked tree."""
    return _Coster(sizes).cost(tree)


class _Coster:
    """Walks a checked tree; stores known sizes of nodes and of names in comprehensions."""

    def __init__(self, sizes: Sizes | None) -> None:
        self.sizes = sizes
        self.paths: dict[Node, SizePath] = {}
        self.computed: dict[Node, Estimate] = {}
        self.entry_sizes: dict[Node, EntrySizes] = {}
        self.locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Estimate:
        """Return the cost of a node including its children."""
        if isinstance(node, Literal):
            return _NOTHING
        return _COSTS[type(node)](self, node)

    def ident(self, node: Ident) -> Estimate:
        local = self.local(node.name)
        self.paths[node] = local.path if local is not None else (node.name,)
        return _STEP

    def local(self, name: str) -> _Local | None:
        """Return the innermost binding of a name."""
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def select(self, node: Select) -> Estimate:
        if node.resolved is not None:
            total = self.ident(node.resolved)
            self.paths[node] = self.paths[node.resolved]
            return total
        total = self.cost(node.operand)
        if node.test_only:
            return total
        if node.operand.type.kind in (Kind.MAP, Kind.STRUCT, Kind.TYPE_PARAM):
            total = total.plus(_STEP)
        self.paths[node] = (*self.path(node.operand), node.field)
        return total

    def call(self, node: Call) -> Estimate:
        if node.function == "dyn":
            argument = node.arguments[0]
            total = self.cost(argument)
            self.copy_sizes(node, argument)
            return total.plus(_STEP)
        costs = [self.cost(argument) for argument in node.arguments]
        arguments = [self.operand(argument) for argument in node.arguments]
        if not node.overloads:
            return _NOTHING
        total = _NOTHING
        operands = arguments
        if node.target is not None:
            total = self.cost(node.target)
            operands = [self.operand(node.target), *arguments]
        call_cost, result_size = _EMPTY, None
        for overload in node.overloads:
            estimated = _overload(overload, operands, costs)
            if overload.id in ("conditional", "add_list"):
                self.join_entries(node, operands[-2].node, operands[-1].node)
            call_cost = call_cost.union(estimated.cost)
            if estimated.result_size is not None:
                result_size = estimated.result_size.union(result_size or estimated.result_size)
            if overload.id in ("index_list", "index_map"):
                entries = self.entries(node.arguments[0])
                result_size = entries.value if entries is not None else None
                below = "@items" if overload.id == "index_list" else "@values"
                self.paths[node] = (*self.path(node.arguments[0]), below)
            if result_size is None:
                result_size = self.size(node)
        if result_size is not None:
            self.computed[node] = result_size
        return total.plus(call_cost)

    def list_literal(self, node: ListLiteral) -> Estimate:
        total, items = _NOTHING, _EMPTY if node.elements else _NOTHING
        for element in node.elements:
            total = total.plus(self.cost(element))
            items = items.union(self.size_or_unknown(element))
        self.entry_sizes[node] = EntrySizes(Kind.LIST, _STEP, items)
        return total.plus(fixed(LIST_BASE))

    def map_literal(self, node: MapLiteral) -> Estimate:
        total = _NOTHING
        keys = values = _EMPTY if node.entries else _NOTHING
        for entry in node.entries:
            total = total.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            keys = keys.union(self.size_or_unknown(entry.key))
            values = values.union(self.size_or_unknown(entry.value))
        self.entry_sizes[node] = EntrySizes(Kind.MAP, keys, values)
        return total.plus(fixed(MAP_BASE))

    def struct_literal(self, node: StructLiteral) -> Estimate:
        return _sum([self.cost(entry.value) for entry in node.entries]).plus(fixed(STRUCT_BASE))

    def comprehension(self, node: Comprehension) -> Estimate:
        if node.accumulator != ACCUMULATOR:
            return self.bind(node)
        total = self.cost(node.range).plus(self.cost(node.init))
        self.push(node.accumulator, self.path(node.init), self.size(node.init), self.entries(node.init))
        self.push_variables(node)
        step = self.cost(node.condition).plus(self.cost(node.step))
        self.locals[node.variable].pop()
        if node.variable2 is not None:
            self.locals[node.variable2].pop()
        total = total.plus(self.cost(node.result))
        self.locals[node.accumulator].pop()
        count = self.size_or_unknown(node.range)
        if isinstance(node.init, Literal):
            size = self.size(node.init)
            if size is not None:
                self.computed[node] = size
        elif isinstance(node.init, ListLiteral | MapLiteral):
            self.computed[node] = count
            entries = self.entries(node.step)
            if entries is not None:
                self.entry_sizes[node] = entries
        return total.plus(count.times(step))

    def bind(self, node: Comprehension) -> Estimate:
        """Return the cost of binding a name, which is that of an empty range and of both parts."""
        total = self.cost(node.range).plus(self.cost(node.init))
        self.push(node.accumulator, self.path(node.init), self.size(node.init), self.entries(node.init))
        total = total.plus(self.cost(node.result))
        self.locals[node.accumulator].pop()
        self.copy_sizes(node, node.result)
        return total

    def push(self, name: str, path: SizePath, size: Estimate | None, entries: EntrySizes | None = None) -> None:
        """Bind a name."""
        self.locals.setdefault(name, []).append(_Local(path, size, entries))

    def push_variables(self, node: Comprehension) -> None:
        """Bind the variables of a loop to the entries of its range."""
        entries, path = self.entries(node.range), self.path(node.range)
        kind = entries.kind if entries is not None else node.range.type.kind
        is_list = kind is Kind.LIST
        key = entries.key if entries is not None else None
        value = entries.value if entries is not None else None
        if node.variable2 is not None:
            own = "@indices" if is_list else "@keys"
            if len(path) & (len(path) - 1):  # in Go both paths then share an array, and the second write wins
                own = "@items" if is_list else "@values"
            self.push(node.variable, (*path, own), key)
            self.push(node.variable2, (*path, "@items" if is_list else "@values"), value)
        elif is_list:
            self.push(node.variable, (*path, "@items"), value)
        else:
            self.push(node.variable, (*path, "@keys"), key)

    def path(self, node: Node) -> SizePath:
        """Return the path from a variable to a node, or an empty one."""
        if isinstance(node, Ident):
            local = self.local(node.name)
            if local is not None:
                return local.path
        return self.paths.get(node, ())

    def operand(self, node: Node) -> _Operand:
        """Return a node as operand for estimators."""
        path = self.path(node)
        if path and path[0] == ACCUMULATOR:
            path = ()
        return _Operand(node, path, self.size(node), self.sizes)

    def size(self, node: Node) -> Estimate | None:
        """Return the size of a node, if known."""
        known = self.computed.get(node)
        if known is None:
            known = literal_size(node)
        if known is None and self.sizes is not None:
            known = self.sizes(self.path(node)) if self.path(node) else None
            if known is not None:
                self.computed[node] = known
        if known is None and is_scalar(node.type):
            known = _STEP
        if known is None and isinstance(node, Ident):
            local = self.local(node.name)
            known = local.size if local is not None else None
        return known

    def size_or_unknown(self, node: Node) -> Estimate:
        """Return the size of a node, or the unknown size."""
        return self.size(node) or UNKNOWN_SIZE

    def entries(self, node: Node) -> EntrySizes | None:
        """Return the entry sizes of a container, if known."""
        known = self.entry_sizes.get(node)
        if known is None and isinstance(node, Ident):
            local = self.local(node.name)
            known = local.entries if local is not None else None
        return known

    def join_entries(self, to: Node, first: Node, second: Node) -> None:
        """Set the entry sizes of a container to the union of those of two others."""
        entries = self.entries(first)
        joined = entries.union(self.entries(second)) if entries is not None else None
        if joined is not None:
            self.entry_sizes[to] = joined

    def copy_sizes(self, to: Node, source: Node) -> None:
        """Copy the sizes of a node to another one."""
        size, entries = self.size(source), self.entries(source)
        if size is not None:
            self.computed[to] = size
        if entries is not None:
            self.entry_sizes[to] = entries


def _sum(costs: list[Estimate]) -> Estimate:
    total = _NOTHING
    for cost in costs:
        total = total.plus(cost)
    return total


def _overload(overload: Overload, operands: list[_Operand], costs: list[Estimate]) -> CallEstimate:
    """Return the estimate of an overload including its arguments."""
    if overload.id == "conditional":
        _, yes, no = operands
        return CallEstimate(costs[0].plus(costs[1].union(costs[2])), yes.size.union(no.size))
    if overload.id in ("logical_and", "logical_or"):
        return CallEstimate(Estimate(costs[0].min, costs[0].plus(costs[1]).max))
    estimator = overload.estimate or STANDARD_ESTIMATES.get(overload.id)
    known = estimator(tuple(operands)) if estimator is not None else None
    if known is None:
        known = CallEstimate(_STEP)
    return CallEstimate(known.cost.plus(_sum(costs)), known.result_size)


_COSTS: dict[type[Node], Callable[[_Coster, Any], Estimate]] = {
    Ident: _Coster.ident,
    Select: _Coster.select,
    Call: _Coster.call,
    ListLiteral: _Coster.list_literal,
    MapLiteral: _Coster.map_literal,
    StructLiteral: _Coster.struct_literal,
    Comprehension: _Coster.comprehension,
}
