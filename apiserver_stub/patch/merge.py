"""Merge patches: JSON merge patch (RFC 7386), whose members replace those of the object and whose nulls remove them;
and strategic merge patch, whose lists are merged as the schema says, steered by directives.

In the latter, maps merge, also those server-side apply treats as atomic, unless their patch strategy is `replace`.
Lists are replaced unless their strategy is `merge`; then objects are matched by the merge key and scalars form a set.
The directives are `$patch`, `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from apiserver_stub.kinds.schema import ANYTHING, Schema
from apiserver_stub.kinds.trees import deep_copy
from controller_manager.api.errors import BadRequest, UnknownError

Tree = dict[str, Any]
Identity = tuple[bool, object]
"""The key that tells elements of a merged list apart: the merge key's value or the scalar itself, and whether it is
boolean (Python takes True for 1, JSON does not).
"""
_Known = tuple[Identity | None, Any]  # an element, and what it is known by

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_GONE: Any = object()
_CONTAINERS = frozenset({dict, list})
_MOST_REPEATS = 100  # of an element in one list of a patch: each copies what the others before have made of it


def apply(tree: Tree, patch: object) -> Tree:
    """Apply a decoded merge patch; the result shares unchanged parts with `tree`, and nothing with the patch.

    Raises `BadRequest` for a patch that is no object.
    """
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch of an object is an object")
    return _merge(tree, patch)


def apply_strategic(tree: Tree, patch: object, schema: Schema) -> Tree:
    """Apply a decoded strategic merge patch as `schema` says; the result shares unchanged parts with `tree`, and
    nothing with the patch.

    Raises `UnknownError` for `$patch` and `$setElementOrder` that are malformed and for an element without its merge
    key, and `BadRequest` for other directives that are.
    """
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch is an object")
    return _merge_map(tree, patch, schema)


def _merge(target: Any, patch: Tree) -> Tree:
    merged = target.copy() if type(target) is dict else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif type(value) is dict:
            merged[name] = _merge(merged.get(name), value)
        else:
            merged[name] = deep_copy(value)
    return merged


def _merge_map(target: Tree, patch: Tree, schema: Schema) -> Tree:
    match _directive(patch):
        case "replace":
            return _members(patch)
        case "delete":
            return {}
    merged = _retained(target, patch)
    directives: list[str] = []
    for name, value in patch.items():
        if name[:1] == "$" and _is_directive(name):
            directives.append(name)
        elif value is None:
            merged.pop(name, None)
        elif type(value) not in _CONTAINERS:
            merged[name] = value
        else:
            value = _merge_value(merged.get(name, _GONE), value, patch.get(_ORDER + name), _child(schema, name))
            if value is not _GONE:
                merged[name] = value
    for name in directives:
        if name.startswith(_DELETE):
            _delete_scalars(merged, name[len(_DELETE) :], patch[name])
        elif name.startswith(_ORDER) and name[len(_ORDER) :] not in patch:
            _reorder(merged, name[len(_ORDER) :], patch[name], schema)
    return merged


def _merge_value(current: Any, value: Any, order: Any, schema: Schema) -> Any:
    """Merge an object or a list."""
    replaced = type(current) is not type(value) or "replace" in schema.patch_strategy
    if type(value) is dict and not replaced:
        return _merge_map(current, value, schema)
    if type(value) is list and not replaced and "merge" in schema.patch_strategy:
        return _merge_list(current, value, order, schema)
    return _plain(value)


def _merge_list(current: list[Any], patch: list[Any], order: Any, schema: Schema) -> list[Any]:
    key = schema.patch_merge_key
    if key:
        merged, wanted = _merge_keyed(current, patch, schema)
    else:
        wanted = [_identity(value, key) for value in patch]
        merged = list(dict(zip(_identities(current + patch, key), current + patch, strict=True)).items())
    listed = _listed(order, key)
    if listed:
        _check_order(wanted, listed)
    return _ordered(merged, listed or wanted, current, key)


def _merge_keyed(current: list[Any], patch: list[Any], schema: Schema) -> tuple[list[_Known], list[Identity]]:
    """Return the merged elements in no particular order, and the identities that the patch sets, in its order.

    An element with `$patch: replace` only says that the others replace the whole list.
    """
    key = schema.patch_merge_key
    changes: list[tuple[Identity, Tree]] = []
    removed: set[Identity] = set()
    replace = False
    for item in patch:
        directive = _directive(item) if type(item) is dict and _PATCH in item else ""
        if directive == "replace":
            replace = True
        elif directive == "delete":
            removed.add(_identity(item, key))
        else:
            changes.append((_identity(item, key), item))
    if replace:
        return [(identity, _members(item)) for identity, item in changes], []
    if len(changes) > _MOST_REPEATS and max(Counter(one for one, _ in changes).values()) > _MOST_REPEATS:
        raise BadRequest(f"a list of a patch has more than {_MOST_REPEATS} elements with the same {key!r}")
    merged = [one for one in _all_known(current, key) if one[0] not in removed]
    places: dict[Identity | None, int] = {}
    for place, (known, _) in enumerate(merged):
        places.setdefault(known, place)
    for identity, change in changes:
        found = places.setdefault(identity, len(merged))
        if found == len(merged):
            merged.append((identity, _members(change)))
        else:
            merged[found] = identity, _merge_map(merged[found][1], change, schema.items or ANYTHING)
    return merged, [identity for identity, _ in changes]


def _ordered(known: Sequence[_Known], wanted: list[Identity], before: list[Any], key: str) -> list[Any]:
    """Return the elements in order: those that the patch orders as it says, the others before the first ordered
    element that came after them in the list as it was.
    """
    if [identity for identity, _ in known] == wanted:
        return [item for _, item in known]
    rank = _ranks(wanted)
    ours = sorted((one for one in known if one[0] in rank), key=lambda one: rank[one[0]])
    if len(ours) == len(known):
        return [item for _, item in ours]
    was = _ranks(_known(item, key) for item in before)
    theirs = deque(one for one in known if one[0] not in rank)
    result: list[Any] = []
    for identity, item in ours:
        place = was.get(identity)
        while theirs and place is not None and was.get(theirs[0][0], place) < place:
            result.append(theirs.popleft()[1])
        result.append(item)
    return [*result, *(item for _, item in theirs)]


def _reorder(merged: Tree, name: str, order: Any, schema: Schema) -> None:
    """Order a list that the patch only puts in order."""
    child = _child(schema, name)
    listed = _listed(order, child.patch_merge_key)
    current = merged.get(name)
    if type(current) is list and "merge" in child.patch_strategy:
        merged[name] = _ordered(_all_known(current, child.patch_merge_key), listed, current, child.patch_merge_key)


def _check_order(wanted: list[Identity], listed: list[Identity]) -> None:
    rest = iter(listed)
    if not all(identity in rest for identity in wanted):
        raise UnknownError("$setElementOrder does not list the elements of the patch in the same order")


def _listed(order: Any, key: str) -> list[Identity]:
    if order is None:
        return []
    if type(order) is not list:
        raise UnknownError("$setElementOrder takes a list")
    return [_identity(item, key) for item in order]


def _delete_scalars(merged: Tree, name: str, values: Any) -> None:
    if type(values) is not list:
        raise BadRequest("$deleteFromPrimitiveList takes a list")
    removed = {_identity(value, "") for value in values}
    current = merged.get(name)
    if type(current) is list:
        merged[name] = [item for item in current if _known(item, "") not in removed]


def _retained(target: Tree, patch: Tree) -> Tree:
    """Return a copy of `target` without the members that `$retainKeys` leaves out."""
    if _RETAIN not in patch:
        return target.copy()
    retained = patch[_RETAIN]
    if type(retained) is not list or not all(type(name) is str for name in retained):
        raise BadRequest("$retainKeys takes a list of field names")
    names = set(retained)
    for name, value in patch.items():
        if value is not None and name not in names and not _is_directive(name):
            raise BadRequest(f"$retainKeys does not list {name!r}, which the patch sets")
    return {name: value for name, value in target.items() if name in names}


def _plain(value: Any) -> Any:
    """Return a value of the patch where there is nothing to merge with; `_GONE` if it says `$patch: delete`."""
    if type(value) is dict:
        return _GONE if _PATCH in value and _directive(value) == "delete" else _members(value)
    if type(value) is list:
        kept = (item for item in value if type(item) is not dict or _PATCH not in item or _directive(item) != "replace")
        return [item for item in map(_plain, kept) if item is not _GONE]
    return value


def _members(patch: Tree) -> Tree:
    """Return the members that a patch sets, without directives and nulls."""
    members: Tree = {}
    for name, value in patch.items():
        if value is None or (name[:1] == "$" and _is_directive(name)):
            continue
        if type(value) in _CONTAINERS:
            value = _plain(value)
        if value is not _GONE:
            members[name] = value
    return members


def _directive(patch: Tree) -> str:
    """Return what `$patch` says: replace, delete or merge (the default)."""
    directive = patch.get(_PATCH, "merge")
    if directive not in ("merge", "replace", "delete"):
        raise UnknownError(f"unknown $patch directive {directive!r}")
    return str(directive)


def _is_directive(name: str) -> bool:
    return name in (_PATCH, _RETAIN) or name.startswith((_ORDER, _DELETE))


def _child(schema: Schema, name: str) -> Schema:
    return schema.fields.get(name) or schema.values or ANYTHING


def _identity(item: Any, key: str) -> Identity:
    """Return the identity of an element of the patch, for which a null will do. Raises `UnknownError`."""
    found = (False, None) if key and type(item) is dict and item.get(key, "") is None else _known(item, key)
    if found is None:
        what = f"merge key {key!r}" if key else "scalar value"
        raise UnknownError(f"an element of a merged list has no {what}: {str(item)[:200]}")
    return found


def _known(item: Any, key: str) -> Identity | None:
    """Return the identity of any element; None if it has none, so that nothing matches it."""
    value = item.get(key) if key and type(item) is dict else None if key else item
    if value is None or type(value) in (dict, list):
        return None
    return type(value) is bool, value


def _all_known(items: Iterable[Any], key: str) -> list[_Known]:
    return [(_known(item, key), item) for item in items]


def _identities(items: Iterable[Any], key: str) -> list[Identity]:
    return [_identity(item, key) for item in items]


def _ranks(identities: Iterable[Identity | None]) -> Mapping[Identity | None, int]:
    ranks: dict[Identity | None, int] = {}
    for place, identity in enumerate(identities):
        if identity is not None:
            ranks.setdefault(identity, place)
    return ranks
