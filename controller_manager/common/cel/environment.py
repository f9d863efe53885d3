"""Environments: variables, types and functions to compile expressions against; and compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from controller_manager.common.cel.checker import check
from controller_manager.common.cel.cost import estimate
from controller_manager.common.cel.frame import Evaluate
from controller_manager.common.cel.library import CostEstimate, Function, Library
from controller_manager.common.cel.library.kubernetes import BASE_LIBRARIES
from controller_manager.common.cel.library.standard import STANDARD
from controller_manager.common.cel.macros import MACROS, Macro, MacroKey
from controller_manager.common.cel.parser import parse
from controller_manager.common.cel.plan import plan, plan_over
from controller_manager.common.cel.sizes import Sizes
from controller_manager.common.cel.syntax import CompileError, Issue, Node, in_order
from controller_manager.common.cel.types import ObjectType, Type
from controller_manager.common.cel.validators import validate
from controller_manager.common.cel.values import CostBudget, EvaluationError


class ProgramError(CompileError):
    """A constant part of an expression fails to evaluate."""

    def __init__(self, message: str, expression: str) -> None:
        super().__init__((Issue(-1, 0, message),), expression)


class Program:
    """A compiled expression; it has no state between evaluations."""

    __slots__ = ("_functions", "_plan", "_tree", "expression", "type")

    def __init__(self, expression: str, tree: Node, environment: Environment) -> None:
        self.expression = expression
        self.type = tree.type
        self._tree = tree
        self._functions = environment.functions
        try:
            self._plan = plan(tree, environment.functions, environment.variables)
        except EvaluationError as error:
            raise ProgramError(error.message, expression) from None

    @property
    def variables(self) -> frozenset[str]:
        """Return the names of the used variables."""
        return self._plan.names

    def estimate(self, sizes: Sizes | None = None) -> CostEstimate:
        """Return the cost range of an evaluation, given the sizes of variables."""
        return estimate(self._tree, sizes)

    def over(self, names: tuple[str, ...]) -> Evaluate:
        """Return the program as a function of a frame (`frame.py`) with the values of `names`, to evaluate many
        programs on the same values. It raises EvaluationError and CostExceeded, but ignores the cost of its last step.
        """
        return plan_over(self._tree, self._functions, names)

    def evaluate(self, variables: Mapping[str, Any], budget: CostBudget) -> Any:
        """Return the value; the cost is added to `budget.spent`. Raises EvaluationError and CostExceeded."""
        return self._plan.run(variables, budget)


class Environment:
    """Variables with their types, the object types in them, and functions, all by name.

    `makers` find the types of other objects that expressions may create, by name.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        types: Mapping[str, Type],
        variables: Mapping[str, Type],
        objects: Mapping[str, ObjectType],
        makers: tuple[Callable[[str], ObjectType | None], ...] = (),
        macros: Mapping[MacroKey, Macro] = MACROS,
    ) -> None:
        self.functions = functions
        self.types = types
        self.variables = variables
        self.objects = objects
        self.makers = makers
        self.macros = macros

    @staticmethod
    @lru_cache(1)
    def base() -> Environment:
        """Return the environment of Kubernetes 1.36 with all libraries and without variables."""
        return Environment({}, {}, {}, {}).with_libraries(*LIBRARIES)

    def with_libraries(self, *libraries: Library) -> Environment:
        """Return an environment with more functions and overloads."""
        functions, types, makers = dict(self.functions), dict(self.types), self.makers
        for library in libraries:
            for function in library.functions:
                functions[function.name] = _merged(functions.get(function.name), function)
            types |= {one.name: one for one in library.types}
            makers += () if library.objects is None else (library.objects,)
        return Environment(functions, types, self.variables, self.objects, makers, self.macros)

    def with_macros(self, macros: Mapping[MacroKey, Macro]) -> Environment:
        """Return an environment with more macros."""
        every = {**self.macros, **macros}
        return Environment(self.functions, self.types, self.variables, self.objects, self.makers, every)

    def extend(self, variables: Mapping[str, Type]) -> Environment:
        """Return an environment with more variables and the object types in them."""
        objects = dict(self.objects)
        for one in variables.values():
            _collect(one, objects)
        return Environment(
            self.functions, self.types, {**self.variables, **variables}, objects, self.makers, self.macros
        )

    def object_type(self, name: str) -> ObjectType | None:
        """Return the object type with a name, or None."""
        for find in self.makers:
            found = find(name)
            if found is not None:
                return found
        return self.objects.get(name)

    def compile(self, expression: str) -> Program:
        """Compile an expression. Raises CompileError."""
        return Program(expression, self.checked(expression), self)

    def checked(self, expression: str) -> Node:
        """Return the syntax tree of an expression with types. Raises CompileError."""
        tree = parse(expression, self.macros)
        issues = check(expression, tree, self) or validate(expression, tree)
        if issues:
            raise CompileError(in_order(issues), expression)
        return tree


def _merged(known: Function | None, added: Function) -> Function:
    if known is None:
        return added
    ids = {overload.id for overload in known.overloads}
    more = tuple(overload for overload in added.overloads if overload.id not in ids)
    return replace(
        known,
        overloads=known.overloads + more,
        cost=known.cost or added.cost,
        implementation=known.implementation or added.implementation,
        guarded=known.guarded and added.guarded,
    )


def _collect(one: Type, objects: dict[str, ObjectType]) -> None:
    """Add the object types that a type contains."""
    if isinstance(one, ObjectType):
        if objects.get(one.name) is one:
            return
        objects[one.name] = one
        for field in one.fields.values():
            _collect(field.type, objects)
    for parameter in one.parameters:
        _collect(parameter, objects)


LIBRARIES = (STANDARD, *BASE_LIBRARIES)
