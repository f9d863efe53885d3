"""The compiled expressions of a mutating policy, and their effect on objects."""

from functools import partial
from typing import Any, NamedTuple

import orjson

from apiserver_stub.admission.policies.apply_configuration import merged
from apiserver_stub.admission.policies.evaluation import MatchResult, PolicyScope, condition_frame, evaluated
from apiserver_stub.admission.policies.index import Exclusion
from apiserver_stub.admission.policies.inputs import RequestInputs, Versioned
from apiserver_stub.admission.policies.json_patches import patched
from apiserver_stub.admission.policies.mutation import MutationError, MutationTarget
from apiserver_stub.common.offload import StepRunner, is_large
from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.schema.clean import Report
from apiserver_stub.kinds.values.trees import deep_copy, with_integers
from controller_manager.common.api.errors import Cause, Details, InternalError
from controller_manager.common.api.tree import Tree
from controller_manager.common.cel.admission import Composition, Expression, ExpressionResult, OutOfBudget, exclusion
from controller_manager.common.cel.library.mutations import PATCH_OBJECT, PATCH_OPERATIONS
from controller_manager.common.cel.types import BOOL

_APPLY = "ApplyConfiguration"


class _Mutation(NamedTuple):
    """A mutation: its expression, and whether the result is an apply configuration or a JSON patch."""

    expression: Expression
    applies: bool


class MutatingProgram:
    """The compiled expressions of a policy `spec`. Each mutation has its own budget."""

    def __init__(self, spec: Tree) -> None:
        has_params = "paramKind" in spec
        composition = Composition(params=has_params, mutates=True)
        for variable in spec.get("variables") or ():
            composition.add(variable["name"], variable["expression"])
        self._variables = composition.variables
        self._conditions = [
            composition.compile(condition["expression"], BOOL) for condition in spec.get("matchConditions") or ()
        ]
        quick = self._conditions and not has_params
        self.exclusion = Exclusion(condition_frame, exclusion(self._conditions)) if quick else None
        self._mutations = [_mutation(composition, each) for each in spec["mutations"]]
        self.mutations = len(self._mutations)
        self.again = spec.get("reinvocationPolicy") == "IfNeeded"

    async def matches(self, inputs: RequestInputs, versioned: Versioned, params: Tree | None, run: StepRunner) -> bool:
        """See `Mutator`."""
        if not self._conditions:
            return True
        verdict = await evaluated(inputs, versioned, params, self._verdict, run)
        if verdict.error:
            raise MutationError(verdict.error)
        return verdict.holds

    async def mutate(
        self,
        number: int,
        target: MutationTarget,
        inputs: RequestInputs,
        versioned: Versioned,
        params: Tree | None,
        run: StepRunner,
    ) -> Tree:
        """See `Mutator`."""
        mutation = self._mutations[number]
        value, error = await evaluated(inputs, versioned, params, partial(self._value, mutation.expression), run)
        if error:
            raise MutationError(error)
        tree = versioned.object
        assert tree is not None  # a delete has nothing to mutate
        trees = (tree, versioned.old_object, params, versioned.request, inputs.namespace)
        step = partial(_applied if mutation.applies else _patched, tree, value, target, trees)
        return await run(step) if is_large(orjson.dumps(tree)) else step()

    def _verdict(self, scope: PolicyScope) -> MatchResult:
        return scope.matches(self._conditions)

    def _value(self, expression: Expression, scope: PolicyScope) -> ExpressionResult:
        try:
            return scope.evaluation(self._variables).evaluate(expression)
        except OutOfBudget as error:
            return ExpressionResult(None, str(error))


def _mutation(composition: Composition, tree: Tree) -> _Mutation:
    if tree["patchType"] == _APPLY:
        expression = composition.compile(tree["applyConfiguration"]["expression"], PATCH_OBJECT)
        return _Mutation(expression, applies=True)
    return _Mutation(composition.compile(tree["jsonPatch"]["expression"], PATCH_OPERATIONS), applies=False)


def _applied(tree: Tree, value: Any, target: MutationTarget, trees: tuple[Any, ...]) -> Tree:
    if not target.is_described:
        why = f"no corresponding type for {target}"
        raise MutationError(f"error applying patch: failed to convert patch object to typed object: {why}")
    found: Tree = with_integers(merged(tree, value, target.schema, trees))
    report = _fitted(found, target)
    if report.wrong:
        raise MutationError(f"unable to convert unstructured object to {target}: {'; '.join(report.wrong)}")
    return _completed(found, target)


def _patched(tree: Tree, value: Any, target: MutationTarget, _trees: tuple[Any, ...]) -> Tree:
    found: Tree = deep_copy(patched(tree, value))
    for name in ("apiVersion", "kind"):
        if name not in found and not target.info.custom:
            found[name] = tree[name]
        if found.get(name) != tree.get(name):
            raise _internal(f"the patch makes {found.get(name)!r} of {tree.get(name)!r} ({name})")
    report = _fitted(found, target)
    if report.wrong:
        raise _internal("; ".join(report.wrong))
    if report.unknown and not target.info.custom:
        listed = ", ".join(f'unknown field "{name}"' for name in report.unknown)
        raise _internal(f"strict decoding error: {listed}")
    return _completed(found, target)


def _fitted(tree: Tree, target: MutationTarget) -> Report:
    """Validate an object against its schema, in place; values of custom objects are validated later."""
    if not isinstance(tree.get("metadata"), dict):
        tree["metadata"] = {}
    return fit_tree(tree, target.schema, nulls=True)


def _completed(tree: Tree, target: MutationTarget) -> Tree:
    if target.is_own_kind:
        apply_defaults(tree, target.info)
    return tree


def _internal(why: str) -> InternalError:
    return InternalError(f"Internal error occurred: {why}", Details(causes=(Cause(message=why),)))
