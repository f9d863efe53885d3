"""Small validation rules and functions that join them. A rule gets a value that fits its schema, its path, and an error
list.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from apiserver_stub.common.error_list import IMMUTABLE, ErrorList, FieldPath, key, place
from apiserver_stub.kinds.values import names
from apiserver_stub.kinds.values.trees import get_in
from controller_manager.common.api.tree import Tree

ValueRule = Callable[[Any, FieldPath, ErrorList], None]
# Checks an update from an old object to a new one.
ChangeRule = Callable[[Tree, Tree, ErrorList], None]
NameRule = Callable[[str], str]

GREATEST = 2**31 - 1
_AS_THEY_ARE: Mapping[str, str] = MappingProxyType({})


def nothing(_value: Any, _at: Any, _found: ErrorList) -> None:
    """Accept every value."""


@dataclass(frozen=True, slots=True)
class KindRules:
    """The validation rules of a kind.

    `body` checks whole objects, `change` updates, `subresources` updates through a subresource (instead of `change`),
    `name` the object name, and `on_create` new objects only. `spec` checks a spec by itself, `no_spec` replaces an
    absent one. A spec that is shared with the stored object is not checked again. `by_schema` also enforces the
    required fields and enums of the schema.
    """

    body: ValueRule = nothing
    change: ChangeRule = nothing
    subresources: Mapping[str, ChangeRule] = field(default_factory=lambda: MappingProxyType({}))
    name: NameRule = names.subdomain
    on_create: ValueRule = nothing
    by_schema: bool = True
    spec: ValueRule = nothing
    no_spec: Tree | None = None


def record(rows: Mapping[str, ValueRule], *whole: ValueRule) -> ValueRule:
    """Return a rule for an object: rules for its fields that are not null, then rules for the whole object."""

    rows = dict(rows)  # lookups are faster in a dict than in other mappings

    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        for name, value in tree.items():
            if name in rows and value is not None:
                rows[name](value, (at, name), errors)
        for row in whole:
            row(tree, at, errors)

    return rule


def within(path: str, rule: ValueRule) -> ValueRule:
    """Return a rule for the value at a dotted path, if it is present."""
    for name in reversed(path.split(".")):
        rule = record({name: rule})
    return rule


def each(rule: ValueRule) -> ValueRule:
    """Return a rule for each item of an array."""

    def every(items: Any, at: FieldPath, errors: ErrorList) -> None:
        for index, item in enumerate(items):
            rule(item, (at, index), errors)
            if errors.full:
                return

    return every


def entries(form: NameRule | None, rule: ValueRule = nothing) -> ValueRule:
    """Return a rule for the keys and the values of a map."""

    def every(values: Any, at: FieldPath, errors: ErrorList) -> None:
        for name, value in values.items():
            if form is not None and (why := form(name)):
                errors.malformed((at, key(name)), name, why)
            rule(value, (at, key(name)), errors)
            if errors.full:
                return

    return every


def both(*rules: ValueRule) -> ValueRule:
    """Return a rule that applies several rules to a value."""

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        for one in rules:
            one(value, at, errors)

    return rule


def form(check: NameRule) -> ValueRule:
    """Return a rule that a text has a certain format."""

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if why := check(value):
            errors.malformed(at, value, why)

    return rule


def if_any(rule: ValueRule) -> ValueRule:
    """Return a rule that skips empty values."""

    def judge(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if value:
            rule(value, at, errors)

    return judge


def at_least(low: int, why: str = "") -> ValueRule:
    """Return a rule that a number is at least `low`."""
    message = why or f"must be greater than or equal to {low}"

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if value < low:
            errors.invalid(at, value, message)

    return rule


def between(low: int, high: int, why: str = "") -> ValueRule:
    """Return a rule that a number is between two bounds, inclusive."""
    message = why or f"must be between {low} and {high}, inclusive"

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if not low <= value <= high:
            errors.invalid(at, value, message)

    return rule


def one_of(*allowed: str) -> ValueRule:
    """Return a rule that a text is one of the given values."""
    listed = sorted(allowed)

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if value not in allowed:
            errors.unsupported(at, value, listed)

    return rule


def need(*fields: str, why: str = "") -> ValueRule:
    """Return a rule that an object has non-empty values in these fields. Zero and false are not empty."""

    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        for name in fields:
            value = tree.get(name)
            if value is None or value in ("", [], {}):
                errors.required((at, name), why)

    return rule


def never(*fields: str, why: str) -> ValueRule:
    """Return a rule that an object has none of these fields. Empty values are ignored."""

    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        for name in fields:
            if tree.get(name) not in (None, "", 0, False, [], {}):
                errors.forbidden((at, name), why)

    return rule


def chosen(
    rows: Mapping[str, ValueRule], none: str, more: str, spellings: Mapping[str, str] = _AS_THEY_ARE
) -> ValueRule:
    """Return a rule that an object has exactly one of some fields.

    The first one, in the order of `rows`, is validated. The others are forbidden. `spellings` renames fields in those
    errors.
    """
    listed = tuple(rows.items())

    def rule(tree: Any, at: FieldPath, errors: ErrorList) -> None:
        first = True
        for name, row in listed:
            if name not in tree:
                continue
            if first:
                row(tree[name], (at, name), errors)
                first = False
            else:
                errors.forbidden((at, spellings.get(name, name)), more)
        if first:
            errors.required(at, none)

    return rule


def distinct(value_of: Callable[[Any], Any] = lambda item: item, *path: str, empties: bool = False) -> ValueRule:
    """Return a rule that no value occurs twice in an array. Empty values may, unless `empties` is set."""

    def rule(items: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(items) < 2:
            return
        for index, value in duplicates(map(value_of, items)):
            if empties or value not in (None, ""):
                errors.duplicate(_inner((at, index), path), value)

    return rule


def duplicates(values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield each value that occurred before, with its index."""
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index, value
        seen.add(value)


def distinct_by(name: str, *, empties: bool = False) -> ValueRule:
    """Return a rule that no value of a field occurs twice in an array of objects. See `distinct`."""
    return distinct(lambda item: item.get(name, ""), name, empties=empties)


def at_most(limit: int) -> ValueRule:
    """Return a rule that an array has at most `limit` items."""

    def rule(items: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(items) > limit:
            errors.too_many(at, len(items), limit)

    return rule


def shorter(limit: int) -> ValueRule:
    """Return a rule that a text has at most `limit` bytes."""

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if len(value) > limit or len(value.encode()) > limit:
            errors.too_long(at, limit)

    return rule


def filled(why: str = "") -> ValueRule:
    """Return a rule that a text, array or object is not empty."""

    def rule(value: Any, at: FieldPath, errors: ErrorList) -> None:
        if not value:
            errors.required(at, why)

    return rule


def fixed(*paths: str, why: str = IMMUTABLE) -> ChangeRule:
    """Return a rule that the values at dotted paths are immutable."""
    rows = tuple((tuple(path.split(".")), place(path)) for path in paths)

    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        for path, at in rows:
            value = get_in(new, path)
            if value != get_in(old, path):
                errors.invalid(at, value, why)

    return change


def fixed_as(path: str, reported_at: str) -> ChangeRule:
    """Return a rule that the value at a dotted path is immutable. The error is reported at the path `reported_at`."""
    parts, at = tuple(path.split(".")), place(reported_at)

    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        value = get_in(new, parts)
        if value != get_in(old, parts):
            errors.invalid(at, value, IMMUTABLE)

    return change


def changes(*rules: ChangeRule) -> ChangeRule:
    """Return a rule that applies several rules to an update."""

    def change(new: Tree, old: Tree, errors: ErrorList) -> None:
        for rule in rules:
            rule(new, old, errors)

    return change


def outcome(rule: ValueRule) -> ChangeRule:
    """Return an update rule that checks the new object with `rule`."""

    def change(new: Tree, _old: Tree, errors: ErrorList) -> None:
        rule(new, None, errors)

    return change


def _inner(at: FieldPath, path: tuple[str, ...]) -> FieldPath:
    for part in path:
        at = (at, part)
    return at
