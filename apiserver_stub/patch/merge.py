"""Merge patches: JSON merge patch (RFC 7386), and strategic merge patch, which merges lists according to the schema and
has directives.

In a strategic merge patch, maps are merged, also those that are atomic in server-side apply, unless their patch
strategy is `replace`. Lists are replaced unless their strategy is `merge`: then objects are matched by the merge key,
and scalars form a set.

The directives are `$patch`, `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`. As in
kube-apiserver, directives in a part that is not merged, such as a new list element, stay in the result as unknown
fields.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from apiserver_stub.kinds.schema.schema import ANYTHING, Schema
from apiserver_stub.kinds.values.trees import deep_copy
from controller_manager.common.api.errors import BadRequest, UnknownError
from controller_manager.common.api.tree import Tree

Identity = tuple[bool, object]
"""The identity of an element of a merged list: the merge key's value or the scalar itself, and whether it is boolean
(in Python True equals 1, in JSON it does not).
"""
_Known = tuple[Identity | None, Any]  # an element with its identity

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_GONE: Any = object()
_CONTAINERS = frozenset({dict, list})
_MOST_REPEATS = 100  # elements with the same key in one list of a patch: each copies the result of the ones before


def apply(tree: Tree, patch: object) -> Tree:
    """Apply a decoded merge patch. The result shares unchanged parts with `tree` and nothing with the patch.

    Raises `BadRequest` if the patch is not an object.
    """
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch of an object is an object")
    return _merge(tree, patch)


def apply_strategic(tree: Tree, patch: object, schema: Schema) -> Tree:
    """Apply a decoded strategic merge patch according to `schema`. The result shares unchanged parts with `tree` and
    nothing with the patch.

    Raises `UnknownError` for a malformed `$patch` or `$setElementOrder` and for an element without its merge key, and
    `BadRequest` for other malformed directives.
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
        elif type(merged.get(name)) is dict:
            merged[name] = deep_copy(value)
        else:
            merged[name] = _without_nulls(value)
    return merged


def _without_nulls(value: Any) -> Any:
    """Return a copy without null members, as kube-apiserver does with new values. A list that replaces an object keeps
    its nulls.
    """
    if type(value) is dict:
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if type(value) is list else value


def _merge_map(target: Tree, patch: Tree, schema: Schema) -> Tree:
    match _directive(patch):
        case "replace":
            return {name: deep_copy(value) for name, value in patch.items() if name != _PATCH}
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
            if value is _GONE:
                merged.pop(name, None)
            else:
                merged[name] = value
    for name in directives:
        if name.startswith(_DELETE):
            _delete_scalars(merged, name[len(_DELETE) :], patch[name])
        elif name.startswith(_ORDER) and name[len(_ORDER) :] not in patch:
            _reorder(merged, name[len(_ORDER) :], patch[name], schema)
    return merged


def _merge_value(current: Any, value: Any, order: Any, schema: Schema) -> Any:
    """Merge an object or a list. Return `_GONE` if it is deleted."""
    if type(value) is list:
        return _merge_list(current if type(current) is list else _GONE, value, order, schema)
    if type(current) is dict and "replace" not in schema.patch_strategy:
        return _merge_map(current, value, schema)
    return _plain(value)


def _merge_list(current: Any, patch: list[Any], order: Any, schema: Schema) -> list[Any]:
    """Merge a list, or set it if there is none. `order` is the value of `$setElementOrder`, if any."""
    key = schema.patch_merge_key
    listed = _listed(order, key)
    if listed:
        _check_order(patch, listed, key)
    before = [] if current is _GONE else current
    if current is _GONE or "merge" not in schema.patch_strategy or "replace" in schema.patch_strategy:
        merged = _plain(patch)
    elif key:
        merged, before = _merge_keyed(current, patch, schema)
    else:
        both = current + patch
        known = dict(zip(_identities(both, key), both, strict=True))
        merged = _ordered(list(known.items()), _identities(patch, key), current, key)
    return merged if order is None else _ordered(_all_known(merged, key), listed, before, key)


def _merge_keyed(current: list[Any], patch: list[Any], schema: Schema) -> tuple[list[Any], list[Any]]:
    """Merge elements that have the same merge key. An element with `$patch: replace` means that the other elements
    replace the whole list.

    Returns the merged list and the list of former positions. As in kube-apiserver, new elements take the positions at
    the end that deleted elements leave.
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
        items = [deep_copy(item) for _, item in changes]
        return _ordered(_all_known(items, key), [], items, key), current
    if len(changes) > _MOST_REPEATS and max(Counter(one for one, _ in changes).values()) > _MOST_REPEATS:
        raise BadRequest(f"a list of a patch has more than {_MOST_REPEATS} elements with the same {key!r}")
    left = [one for one in _all_known(current, key) if one[0] not in removed]
    merged = left.copy()
    places: dict[Identity | None, int] = {}
    for place, (known, _) in enumerate(merged):
        places.setdefault(known, place)
    for identity, change in changes:
        found = places.setdefault(identity, len(merged))
        if found == len(merged):
            merged.append((identity, deep_copy(change)))
        else:
            merged[found] = identity, _merge_map(merged[found][1], change, schema.items or ANYTHING)
    before = [item for _, item in merged]
    wanted = [identity for identity, _ in changes]
    return _ordered(merged, wanted, before[: len(left)], key), before[: len(current)]


def _ordered(known: Sequence[_Known], wanted: Sequence[Identity], before: list[Any], key: str) -> list[Any]:
    """Return the elements in order: `wanted` identities in their order, and each other element before the first wanted
    one that followed it in `before`. Elements with the same identity stay together.
    """
    rank = _ranks(wanted)
    ours = sorted((one for one in known if one[0] in rank), key=lambda one: rank[one[0]])
    if len(ours) == len(known):
        return [item for _, item in ours]
    was = _ranks(_known(item, key) for item in before)
    others = ((was.get(one[0], place), one) for place, one in enumerate(known) if one[0] not in rank)
    theirs = deque(one for _, one in sorted(others, key=itemgetter(0)))
    result: list[Any] = []
    for identity, item in ours:
        place = was.get(identity)
        while theirs and place is not None and was.get(theirs[0][0], place) < place:
            result.append(theirs.popleft()[1])
        result.append(item)
    return [*result, *(item for _, item in theirs)]


def _reorder(merged: Tree, name: str, order: Any, schema: Schema) -> None:
    """Reorder a list that the patch does not change otherwise."""
    child = _child(schema, name)
    listed = _listed(order, child.patch_merge_key)
    current = merged.get(name)
    if type(current) is list and "merge" in child.patch_strategy:
        merged[name] = _ordered(_all_known(current, child.patch_merge_key), listed, current, child.patch_merge_key)


def _check_order(patch: list[Any], listed: list[Identity], key: str) -> None:
    """Raises `UnknownError` if the elements of a patch are not in the listed order. Elements with a directive are not
    part of the order, but must not follow all of it.
    """
    directives = [item.get(_PATCH) if key and type(item) is dict else None for item in patch]
    waiting = deque(
        None if directive is not None else _identity(item, key)
        for item, directive in zip(patch, directives, strict=True)
        if directive != "delete"
    )
    for identity in listed:
        while waiting and waiting[0] is None:
            waiting.popleft()
        if not waiting:
            return
        if waiting[0] == identity:
            waiting.popleft()
    if waiting:
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
    """Return a copy of `target` without the members that `$retainKeys` omits."""
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
    """Return a patch value that has no counterpart to merge with; `_GONE` if it has a `$patch` directive."""
    if type(value) is dict:
        return _GONE if _PATCH in value else _members(value)
    if type(value) is list:
        return [item for item in map(_plain, value) if item is not _GONE]
    return value


def _members(patch: Tree) -> Tree:
    """Return the members that a patch sets, without nulls."""
    members: Tree = {}
    for name, value in patch.items():
        if value is None:
            continue
        if type(value) in _CONTAINERS:
            value = _plain(value)
        if value is not _GONE:
            members[name] = value
    return members


def _directive(patch: Tree) -> str:
    """Return the value of `$patch`: replace, delete, or empty if it is missing. Raises `UnknownError`."""
    directive = patch.get(_PATCH, "")
    if directive not in ("replace", "delete") and _PATCH in patch:
        raise UnknownError(f"unknown $patch directive {directive!r}; use replace or delete")
    return str(directive)


def _is_directive(name: str) -> bool:
    return name in (_PATCH, _RETAIN) or name.startswith((_ORDER, _DELETE))


def _child(schema: Schema, name: str) -> Schema:
    return schema.fields.get(name) or schema.values or ANYTHING


def _identity(item: Any, key: str) -> Identity:
    """Return the identity of a patch element; null is allowed. Raises `UnknownError`."""
    found = (False, None) if key and type(item) is dict and item.get(key, "") is None else _known(item, key)
    if found is None:
        what = f"merge key {key!r}" if key else "scalar value"
        raise UnknownError(f"an element of a merged list has no {what}: {str(item)[:200]}")
    return found


def _known(item: Any, key: str) -> Identity | None:
    """Return the identity of any element, or None if it has none and therefore matches nothing."""
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
