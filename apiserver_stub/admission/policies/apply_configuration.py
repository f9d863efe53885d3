"""Apply configurations: the result of an expression `Object{...}` is merged into an object like a server-side apply.

The configuration must match the schema of the object, and may not set atomic values: the author of `args: ['x']` may
not intend to remove the other arguments. Containers that an expression creates inside its own containers are not
allowed, because objects in lists are created by type name (`Object.spec.containers{...}`); containers read from JSON
are allowed.
"""

from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any

from apiserver_stub.admission.policies.mutation import MutationError
from apiserver_stub.kinds.schema.schema import ANYTHING, Schema
from apiserver_stub.patch.conformance import NotJSON, check_typed
from apiserver_stub.patch.typed_objects import type_of
from controller_manager.common.api.errors import UnknownError
from controller_manager.common.api.tree import Tree
from controller_manager.common.cel.library.mutations import PatchObject
from controller_manager.common.cel.shown import go_type, shown
from controller_manager.common.cel.types import Type
from controller_manager.common.cel.values import EvaluationError, Optional, Uint

_NULL = NotJSON("NULL_VALUE", "structpb.NullValue", "0")
_SCALARS = frozenset({bool, int, float, str})
_PLAIN = _SCALARS | {PatchObject}
_Inputs = tuple[Any, ...]


def merged(live: Tree, value: Any, schema: Schema, inputs: _Inputs) -> Tree:
    """Return the object with a configuration merged into it; the result shares parts with it. `inputs` are the trees
    that the expression could read. Raises `MutationError`.
    """
    configuration = {**_configuration(value, inputs), "apiVersion": live["apiVersion"], "kind": live["kind"]}
    try:
        check_typed(configuration, schema, "error applying patch: failed to convert patch object to typed object")
    except UnknownError as error:
        raise MutationError(error.message) from None
    for path, wrong in _not_json(configuration, ""):
        why = f"{path}: expected map, got &{{{wrong.text}}}"
        raise MutationError(f"error applying patch: failed to convert patch object to typed object: {why}")
    if replaced := list(_atomic(configuration, schema, "")):
        why = f"may not mutate atomic arrays, maps or structs: {', '.join(replaced)}"
        raise MutationError(f"error applying patch: invalid ApplyConfiguration: {why}")
    result: Tree = type_of(schema).merge(live, configuration)
    return result


def _configuration(value: Any, inputs: _Inputs) -> Tree:
    if not isinstance(value, PatchObject):
        raise MutationError(f"unsupported return type from ApplyConfiguration expression: {_named(value)}")
    if wrong := list(value.misnamed()):
        raise MutationError("type mismatch: " + "\n".join(wrong))
    try:
        return _Plain(inputs).object(value)
    except EvaluationError as error:
        raise MutationError(f"invalid return type: {go_type(value)}") from error


def _named(value: Any) -> str:
    return "map(dyn, dyn)" if isinstance(value, dict) else go_type(value)


class _Plain:
    """Converts values of expressions to plain JSON; `NotJSON` stands for values without a JSON form."""

    def __init__(self, inputs: _Inputs) -> None:
        self._inputs = inputs
        self._read: Set[int] | None = None

    def object(self, made: PatchObject) -> Tree:
        """Return an object. Raises `EvaluationError` for a map with keys that are not strings."""
        return {name: self._field(name, value) for name, value in made.fields.items()}

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, Optional):
            return self._field(name, value.value) if value.present else None
        if isinstance(value, dict):
            if any(type(key) is not str for key in value):
                raise EvaluationError(f"{name} is a map with keys that are no strings")
            return value if self._is_read(value, value.values()) else self._made(value)
        if isinstance(value, list):
            return value if self._is_read(value, value) else self._made(value)
        return self._value(value)

    def _made(self, container: Any) -> Any:
        """Return a container that the expression made."""
        if isinstance(container, list):
            return [self._value(item) for item in container]
        return {key: self._value(item) for key, item in container.items()}

    def _value(self, value: Any) -> Any:
        """Convert a value in a field or in a container created by the expression."""
        if type(value) in _SCALARS:
            return value
        if value is None:
            return _NULL
        if isinstance(value, PatchObject):
            return self.object(value)
        if isinstance(value, Optional):
            return self._value(value.value) if value.present else None
        if isinstance(value, list | dict):
            return value if id(value) in self._known() else NotJSON(_go_text(value), "[]ref.Val")
        if isinstance(value, Type):
            return value.name
        return NotJSON(shown(value), "uint64" if isinstance(value, Uint) else go_type(value))

    def _is_read(self, container: Any, items: Collection[Any]) -> bool:
        """Return whether a container was read from JSON; always False if its items make no difference."""
        if all(type(item) in _PLAIN for item in items):
            return False
        return id(container) in self._known()

    def _known(self) -> Set[int]:
        """Return the identities of all containers that were read."""
        if self._read is None:
            self._read = {id(one) for tree in self._inputs for one in _containers(tree)}
        return self._read


def _containers(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _containers(value)
    elif isinstance(tree, list):
        yield tree
        for value in tree:
            yield from _containers(value)


def _go_text(value: Any) -> str:
    """Return a container as Go prints it."""
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{shown(key)}:{_go_text(value[key])}' for key in sorted(value, key=shown))}]"
    return f"[{' '.join(map(_go_text, value))}]" if isinstance(value, list) else shown(value)


def _not_json(value: Any, path: str) -> Iterator[tuple[str, NotJSON]]:
    """Yield the values that are not JSON where the schema allows any value."""
    if isinstance(value, NotJSON):
        yield path, value
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from _not_json(value[name], f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_json(item, f"{path}[{index}]")


def _atomic(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Yield the paths of atomic values: containers that are replaced as a whole."""
    if isinstance(value, dict) and schema.type == "object":
        if schema.map_type == "atomic":
            yield path
        for name in sorted(value):
            field = schema.fields.get(name)
            if field is not None:
                yield from _atomic(value[name], field, f"{path}.{name}")
    elif isinstance(value, list) and schema.type == "array":
        if schema.list_type not in ("set", "map"):
            yield path
        for index, item in enumerate(value):
            yield from _atomic(item, schema.items or ANYTHING, f"{path}[{index}]")
