"""Server-side apply (KEP-555): an applied configuration merged into an object, and who owns what afterwards; pure."""

from typing import Any, NamedTuple

from apiserver_stub.kinds.clean import clean_tree
from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.patch import last_applied
from apiserver_stub.patch.copies import copied
from apiserver_stub.patch.field_set import Fields, Path, difference, intersection, of, paths, render, union
from apiserver_stub.patch.managed_fields import (
    UPDATE,
    Entries,
    Entry,
    FieldManager,
    disowned,
    fields_of,
    identity_of,
    in_order,
)
from apiserver_stub.patch.of_schema import typed
from apiserver_stub.patch.typed import IndistinctError
from apiserver_stub.patch.versions import UNTRACKED, Comparison, Versions, tracked
from controller_manager.api.errors import BadRequest, Cause, Conflict, Details

Tree = dict[str, Any]
_Dispute = tuple[Entry, Path]

_MOST_TOLD = 200  # conflicts in one answer
_BEFORE = "before-first-apply"
_NOBODYS = of(
    ("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in sorted(UNTRACKED))
)


class ApplyRequest(NamedTuple):
    """What an applier wants: its configuration, which fits the schema of `kind` but for nulls and unknown fields; who
    it is; and whether it takes what others own.
    """

    config: Tree
    kind: ResourceInfo
    author: FieldManager
    force: bool = False


class Applied(NamedTuple):
    """The object after an apply, and its record of owners; `tree` still has the record it had."""

    tree: Tree
    entries: Entries


def create(claim: ApplyRequest, time: str) -> Applied:
    """The configuration as a new object. Raises `BadRequest` for list elements that can't be told apart."""
    own = difference(_declared(claim), _NOBODYS)
    tree = copied(claim.config)
    clean_tree(tree, claim.kind.schema)
    return Applied(tree, [claim.author.entry_in_order(own, time)] if own else [])


def change(claim: ApplyRequest, live: Tree, entries: Entries, versions: Versions, time: str) -> Applied:
    """The configuration laid over an object, without what this applier once applied and nobody claims any more.

    Raises `Conflict` for fields it would change that others own, and `BadRequest` as `create` does.
    """
    declared = _declared(claim)
    entries = entries or _before(claim, live, time)
    mine = next((entry for entry in entries if identity_of(entry) == claim.author.identity), None)
    others = [entry for entry in entries if entry is not mine]
    tree = typed(claim.kind.schema).merge(live, claim.config)
    own = difference(declared, _NOBODYS)
    same = mine is not None and mine["apiVersion"] == claim.author.api_version and fields_of(mine) == own
    given_up = {} if same else _given_up(mine, declared, claim.author)
    if mine and given_up:
        owners = [*others, claim.author.entry_in_order(declared, time)]
        tree = _pruned(tree, given_up, mine["apiVersion"], owners, versions)
    tree = copied(tree)
    clean_tree(tree, claim.kind.schema)
    apply_defaults(tree, claim.kind)  # which may fold what was applied into what was there
    comparison = Comparison(versions, live, tree)
    if not claim.force:
        _check(claim, live, _disputes(others, comparison))
    left = disowned(others, comparison.seen_in)
    if own:
        quiet = same and comparison.seen_in(claim.author.api_version) == (None, None)
        left.append(mine if mine and quiet else claim.author.entry_in_order(own, time))
    if claim.author.manager == last_applied.MANAGER:
        tree = last_applied.renewed(tree, claim.config)
    return Applied(tree, in_order(left))


def _declared(claim: ApplyRequest) -> Fields:
    try:
        return typed(claim.kind.schema).declared(claim.config)
    except IndistinctError as problem:
        raise BadRequest(f"the applied configuration is ambiguous: {render(problem.path)}: {problem.why}") from None


def _before(claim: ApplyRequest, live: Tree, time: str) -> Entries:
    """A record for an object that has none: all it has is somebody's, but not the applier's."""
    fields = typed(claim.kind.schema).born(tracked(live))
    author = claim.author._replace(manager=_BEFORE, operation=UPDATE)
    return [author.entry_in_order(fields, time)] if fields else []


def _given_up(mine: Entry | None, declared: Fields, author: FieldManager) -> Fields:
    """What an applier owned and, as far as its version can tell, no longer wants."""
    if mine is None:
        return {}
    fields = fields_of(mine)
    return difference(fields, declared) if mine["apiVersion"] == author.api_version else fields


def _pruned(tree: Tree, given_up: Fields, api_version: str, owners: Entries, versions: Versions) -> Tree:
    """`tree` without the given fields of a version, but for what is in one of the `owners`."""
    last = versions.find(api_version)
    if last is None:
        return tree
    owned: dict[str, Fields] = {}
    for entry in owners:
        owned[entry["apiVersion"]] = union(owned.get(entry["apiVersion"], {}), fields_of(entry))
    claimed = owned.pop(api_version, {})
    left = last.back(last.typed.prune(last.into(tree), given_up, claimed))
    for api_version, claimed in owned.items():
        version = versions.find(api_version)
        if version is not None:
            there = version.into(tree)
            changes = version.typed.compare(there, version.into(left))
            lost = union(changes.changed or {}, changes.removed or {})
            if intersection(lost, claimed):
                left = version.back(version.typed.prune(there, lost, claimed))
    return left


def _disputes(others: Entries, comparison: Comparison) -> list[_Dispute]:
    """Fields of others that an apply would change."""
    found: list[_Dispute] = []
    for entry in sorted(others, key=identity_of):
        changes = comparison.seen_in(entry["apiVersion"])
        if changes is not None and changes.changed:
            found.extend((entry, path) for path in paths(intersection(fields_of(entry), changes.changed)))
    return found


def _check(claim: ApplyRequest, live: Tree, disputes: list[_Dispute]) -> None:
    """Refuse what others would lose, all of it at once."""
    if disputes and claim.author.manager == last_applied.MANAGER:
        ours = last_applied.applied_before(live, claim.kind.schema)
        disputes = [(entry, path) for entry, path in disputes if not intersection(of(path), ours)]
    if not disputes:
        return
    causes = [Cause(reason="FieldManagerConflict", message=f"conflict with {_named(entry)}", field=render(path))
              for entry, path in disputes[:_MOST_TOLD]]  # fmt: skip
    raise Conflict(_told(disputes), Details(causes=tuple(causes)))


def _told(disputes: list[_Dispute]) -> str:
    if len(disputes) == 1:
        entry, path = disputes[0]
        return f"Apply failed with 1 conflict: conflict with {_named(entry)}: {render(path)}"
    lines: list[str] = []
    known: Entry | None = None
    for entry, path in disputes[:_MOST_TOLD]:
        if entry is not known:
            lines.append(f"conflicts with {_named(entry)}:")
            known = entry
        lines.append(f"- {render(path)}")
    if len(disputes) > _MOST_TOLD:
        lines.append(f"and {len(disputes) - _MOST_TOLD} more")
    return f"Apply failed with {len(disputes)} conflicts: " + "\n".join(lines)


def _named(entry: Entry) -> str:
    name = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        name += f' with subresource "{entry["subresource"]}"'
    return f"{name} using {entry['apiVersion']}" if entry["operation"] == UPDATE else name
