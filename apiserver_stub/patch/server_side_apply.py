"""Server-side apply (KEP-555): merge a configuration into an object and record the field managers. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

import orjson

from apiserver_stub.kinds.defaults.kinds import apply_defaults
from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.rules.metadata import fit
from apiserver_stub.kinds.schema.clean import sweep
from apiserver_stub.kinds.schema.schema import Schema
from apiserver_stub.kinds.shared_parts import detached, fit_others, may_share, share
from apiserver_stub.kinds.values.trees import deep_copy, equal, get_in
from apiserver_stub.patch.field_set import (
    Fields,
    FieldSetPath,
    difference,
    intersection,
    of,
    paths,
    render,
    union,
)
from apiserver_stub.patch.managed_fields import (
    UNOWNED,
    UPDATE,
    Comparison,
    Entries,
    FieldManager,
    ManagedFieldsEntry,
    Versions,
    disowned,
    fields_of,
    identity_of,
    in_order,
    owned_part,
    writable,
)
from apiserver_stub.patch.typed import IndistinctError
from apiserver_stub.patch.typed_objects import type_of
from controller_manager.common.api.errors import BadRequest, Cause, Conflict, Details, UnknownError
from controller_manager.common.api.tree import Tree

_FieldConflict = tuple[ManagedFieldsEntry, FieldSetPath]

_KUBECTL = "kubectl"  # the only manager that migrates from the last-applied annotation and keeps it up to date
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_REPORTED = 200  # conflicts in one error
_LONGEST_REPORT = 64 * 1024  # characters of field paths after which no more conflicts are listed
_BEFORE_FIRST_APPLY = "before-first-apply"
_UNOWNED_FIELDS = of(
    ("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in sorted(UNOWNED))
)


class ApplyRequest(NamedTuple):
    """A configuration to apply, its manager, and whether it takes over fields of other managers (force). The
    configuration fits the schema of `kind`, except for nulls and unknown fields.
    """

    config: Tree
    kind: ResourceInfo
    author: FieldManager
    force: bool = False


class Applied(NamedTuple):
    """The object after an apply, and its new managed fields; `tree` still has the old ones."""

    tree: Tree
    entries: Entries


def create(request: ApplyRequest, sent: Tree, time: str) -> Applied:
    """Create an object from `sent`: the configuration and its fields without an owner. Raises `UnknownError` for
    duplicate list elements.
    """
    own = _owned(_declared(request.config, request.kind.schema))
    tree = deep_copy(sent)
    fit_tree(tree, request.kind.schema, nulls=True)
    return Applied(tree, [request.author.entry_in_order(own, time)] if own else [])


def change(request: ApplyRequest, live: Tree, entries: Entries, versions: Versions, time: str) -> Applied:
    """Apply the configuration to an object and remove fields that this manager applied before and no manager owns now.

    Raises `Conflict` for changes of fields of other managers, `BadRequest` if no metadata would be left, and
    `UnknownError` as `create` does.
    """
    declared = _declared(request.config, request.kind.schema)
    own = _owned(declared)
    entries = entries or _first_entries(request, live, time)
    versions.check(live, entries)
    mine = request.author.entry_in(entries)
    others = [entry for entry in entries if entry is not mine]
    same = mine is not None and mine["apiVersion"] == request.author.api_version and fields_of(mine) == own
    tree = type_of(request.kind.schema).merge(live, request.config)
    abandoned = {} if same else _abandoned(mine, declared, request.author)
    if mine and abandoned:
        owners = [*others, request.author.entry_in_order(declared, time)]
        tree = _pruned(tree, abandoned, mine["apiVersion"], owners, versions)
        if "metadata" not in tree:
            raise BadRequest("the applied configuration would take away all metadata of the object, its name included")
    # Conflicts are found in the text of values, not in their meaning: 1000m differs from 1.
    comparison = Comparison(versions, live, tree)
    if not request.force:
        _check(request, live, _conflicts(others, comparison))
    left = disowned(others, comparison.changes_in)
    if own:
        is_changed = comparison.changes_in(request.author.api_version) != (None, None)
        since = time if is_changed else mine.get("time", "") if mine else ""
        left.append(mine if mine and same and not is_changed else request.author.entry_in_order(own, since))
    tree = _completed(tree, live, request.kind)
    if request.author.manager == _KUBECTL:
        tree = with_last_applied(tree, request.config)
    left = in_order(left)
    return Applied(tree, entries if _differs_in_times(left, entries) and _is_same(tree, live) else left)


def _completed(tree: Tree, live: Tree, kind: ResourceInfo) -> Tree:
    """Return the merged object, fitted to its schema and with its defaults. It may be changed, except for its managed
    fields and the parts that it shares with the live object.
    """
    if may_share(kind):
        share(tree, live, kind)
        own = detached(tree, live)
        fit_others(own, live, kind)
        return own
    own = _own(tree)
    fit_tree(own, kind.schema, nulls=True)
    apply_defaults(own, kind)  # defaults may merge applied fields into live ones
    return own


def _differs_in_times(entries: Entries, others: Entries) -> bool:
    """Return whether the entries differ in their times only."""
    return entries != others and _without_times(entries) == _without_times(others)


def _without_times(entries: Entries) -> Entries:
    return [{name: value for name, value in entry.items() if name != "time"} for entry in entries]


def _is_same(tree: Tree, live: Tree) -> bool:
    """Return whether an object equals the live one except for its managed fields. The configuration may spell the same
    state differently, such as `stringData` of a Secret.
    """
    return equal(_beside_entries(tree), _beside_entries(live))


def _beside_entries(tree: Tree) -> Tree:
    metadata = {name: value for name, value in tree["metadata"].items() if name != "managedFields"}
    return {**tree, "metadata": metadata}


def _own(tree: Tree) -> Tree:
    """Return a copy that may be changed, except for its managed fields."""
    metadata = dict(tree["metadata"])
    entries = metadata.pop("managedFields", None)
    copy: Tree = deep_copy({**tree, "metadata": metadata})
    if entries is not None:
        copy["metadata"]["managedFields"] = entries
    return copy


def _declared(config: Tree, schema: Schema) -> Fields:
    """Return the fields that a configuration declares, in order. Raises `UnknownError`."""
    try:
        return type_of(schema).declared(config)
    except IndistinctError as problem:
        raise UnknownError(f"the applied configuration is ambiguous: {render(problem.path)}: {problem.why}") from None


def _owned(declared: Fields) -> Fields:
    """Return the declared fields that can have an owner."""
    return difference(declared, _UNOWNED_FIELDS)


def _first_entries(request: ApplyRequest, live: Tree, time: str) -> Entries:
    """Return managed fields for an object without any: its fields that the request may write belong to the manager
    `before-first-apply`.
    """
    written = writable(live, request.kind.strategy, request.author.subresource)
    fields = type_of(request.kind.schema).initial(owned_part(written))
    author = request.author._replace(manager=_BEFORE_FIRST_APPLY, operation=UPDATE)
    return [author.entry_in_order(fields, time)] if fields else []


def _abandoned(mine: ManagedFieldsEntry | None, declared: Fields, author: FieldManager) -> Fields:
    """Return the fields that a manager owned and no longer applies, as far as its version has them."""
    if mine is None:
        return {}
    fields = fields_of(mine)
    return difference(fields, declared) if mine["apiVersion"] == author.api_version else fields


def _pruned(tree: Tree, abandoned: Fields, api_version: str, owners: Entries, versions: Versions) -> Tree:
    """Return `tree` without the given fields of a version, except those of one of the `owners`."""
    last = versions.find(api_version)
    if last is None:
        return tree
    owned: dict[str, Fields] = {}
    for entry in owners:
        owned[entry["apiVersion"]] = union(owned.get(entry["apiVersion"], {}), fields_of(entry))
    claimed, whole = owned.pop(api_version, {}), last.into(tree)
    pruned = left = last.back(last.typed.prune(whole, abandoned, claimed))
    for api_version, claimed in owned.items():
        version = versions.find(api_version)
        if version is not None:
            there = version.into(tree)
            changes = version.typed.compare(there, version.into(left))
            lost = union(changes.changed or {}, changes.removed or {})
            if intersection(lost, claimed):
                left = version.back(version.typed.prune(there, lost, claimed))
    if left is pruned:
        return left
    # Pruning with the fields of other managers restores everything that this manager never applied.
    return last.back(last.typed.prune(whole, abandoned, last.typed.initial(last.into(left))))


def _conflicts(others: Entries, comparison: Comparison) -> list[_FieldConflict]:
    """Return the fields of other managers that an apply would change."""
    found: list[_FieldConflict] = []
    for entry in sorted(others, key=identity_of):
        changes = comparison.changes_in(entry["apiVersion"])
        if changes is not None and changes.changed:
            found.extend((entry, path) for path in paths(intersection(fields_of(entry), changes.changed)))
    return found


def _check(request: ApplyRequest, live: Tree, conflicts: list[_FieldConflict]) -> None:
    """Raises `Conflict` for all fields that other managers would lose."""
    if conflicts and request.author.manager == _KUBECTL:
        ours = _last_applied(live, request.kind.schema)
        conflicts = [(entry, path) for entry, path in conflicts if not intersection(of(path), ours)]
    if not conflicts:
        return
    reported = list(_reported(conflicts))
    causes = [Cause(reason="FieldManagerConflict", message=f"conflict with {_manager_name(entry)}", field=field)
              for entry, field in reported]  # fmt: skip
    raise Conflict(_conflict_message(reported, len(conflicts)), Details(causes=tuple(causes)))


def _reported(conflicts: list[_FieldConflict]) -> Iterator[tuple[ManagedFieldsEntry, str]]:
    """Yield the entries and fields of as many conflicts as fit in an error, at least one."""
    room = _LONGEST_REPORT
    for entry, path in conflicts[:_MOST_REPORTED]:
        yield entry, (field := render(path))
        room -= len(field)
        if room < 0:
            return


def _conflict_message(reported: list[tuple[ManagedFieldsEntry, str]], count: int) -> str:
    if count == 1:
        ((entry, field),) = reported
        return f"Apply failed with 1 conflict: conflict with {_manager_name(entry)}: {field}"
    lines: list[str] = []
    known: ManagedFieldsEntry | None = None
    for entry, field in reported:
        if entry is not known:
            lines.append(f"conflicts with {_manager_name(entry)}:")
            known = entry
        lines.append(f"- {field}")
    if count > len(reported):
        lines.append(f"and {count - len(reported)} more")
    return f"Apply failed with {count} conflicts: " + "\n".join(lines)


def _manager_name(entry: ManagedFieldsEntry) -> str:
    name = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        name += f' with subresource "{entry["subresource"]}"'
    return f"{name} using {entry['apiVersion']}" if entry["operation"] == UPDATE else name


def _last_applied(live: Tree, schema: Schema) -> Fields:
    """Return the fields in the annotation of client-side apply whose values have not changed; taking them over is no
    conflict. Empty if the annotation has no object of the same version.
    """
    try:
        before = orjson.loads(get_in(live, ("metadata", "annotations", _LAST_APPLIED)) or "")
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(before, dict) or before.get("apiVersion") != live["apiVersion"] or sweep(before, schema).wrong:
        return {}
    before.setdefault("metadata", {})
    kind = type_of(schema)
    try:
        declared = kind.declared(before)
    except IndistinctError:
        return {}
    changes = kind.compare(owned_part(before), owned_part(live))
    return difference(difference(declared, changes.changed or {}), changes.removed or {})


def with_last_applied(tree: Tree, applied: Tree) -> Tree:
    """Return the object with its last-applied annotation, if any, set to `applied`."""
    annotations = get_in(tree, ("metadata", "annotations")) or {}
    if not annotations.get(_LAST_APPLIED):
        return tree
    metadata = applied["metadata"]
    ours = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != _LAST_APPLIED}
    recorded = {**applied, "metadata": {**metadata, "annotations": ours}}
    text = orjson.dumps(recorded, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
    rest = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
    whole = {**rest, _LAST_APPLIED: text}
    return {**tree, "metadata": {**tree["metadata"], "annotations": whole if fit(whole) else rest}}
