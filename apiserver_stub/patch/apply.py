"""Server-side apply (KEP-555): merges a configuration into an object, and records who owns which fields; pure."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import orjson

from apiserver_stub.kinds.clean import sweep
from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.findings import LABELS, LONGEST, Findings, beside_spec, without_free_text
from apiserver_stub.kinds.fit import fit_tree
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.rules.metadata import fit, unreserved_changes
from apiserver_stub.kinds.schema import Schema
from apiserver_stub.kinds.shared_parts import detached, fit_others, may_share, share
from apiserver_stub.kinds.trees import deep_copy, equal, get_in
from apiserver_stub.patch.field_set import (
    LEAF,
    Fields,
    Path,
    difference,
    intersection,
    of,
    paths,
    render,
    to_field,
    union,
)
from apiserver_stub.patch.managed_fields import (
    UNOWNED,
    UPDATE,
    Comparison,
    Entries,
    Entry,
    FieldManager,
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
from controller_manager.api.errors import BadRequest, Cause, Conflict, Details, UnknownError

Tree = dict[str, Any]
_FieldConflict = tuple[Entry, Path]

_KUBECTL = "kubectl"  # the only manager that takes over from the annotation, and keeps it true
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_REPORTED = 200  # conflicts in one answer
_LONGEST_REPORT = 64 * 1024  # characters of their fields, after which no more are reported
_MOST_DECLARED = 16  # sets of names that are beside one spec
_MOST_DIGESTS = 256
_MOST_LEFT = 512  # live specs of which one applied is known to change nothing: pods of one have each a volume of theirs
_BEFORE_FIRST_APPLY = "before-first-apply"
_UNOWNED_FIELDS = of(
    ("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in sorted(UNOWNED))
)


class Declaration(NamedTuple):
    """The fields that a configuration declares, in order, and those of them that its applier owns."""

    fields: Fields
    own: Fields


class AppliedSpec:
    """What is known of a spec that was applied `times` often: what configurations `declared` with it, by what is beside
    it, the digests of live ones that it `left` as they were, and its `tree`, if that was found to be right and came
    again.
    """

    __slots__ = ("declared", "left", "times", "tree")

    def __init__(self) -> None:
        self.times = 0
        self.tree: Tree | None = None
        self.declared: dict[bytes, Declaration] = {}
        self.left: set[bytes] = set()

    def note(self, tree: Tree) -> None:
        """Note that it came, and is right. The first time it is not kept: most of what people write never comes
        again.
        """
        self.times += 1
        if self.times > 1:
            self.tree = tree


def applied_spec(schema: Schema, spec: bytes) -> AppliedSpec:
    """Return what is known of a spec, in JSON, of objects of a schema."""
    return schema.derived(_applied_specs).of(spec)


def _applied_specs(_schema: Schema) -> Findings[AppliedSpec]:
    return Findings(AppliedSpec, most=64)


class ApplyRequest(NamedTuple):
    """A configuration to apply, which fits the schema of `kind` but for nulls and unknown fields; its applier; whether
    that takes fields which others own; and what is known of its spec, if that was looked for.
    """

    config: Tree
    kind: ResourceInfo
    author: FieldManager
    force: bool = False
    spec: AppliedSpec | None = None


class Applied(NamedTuple):
    """The object after an apply, and its managed fields; those in `tree` are still the former ones. If nothing but
    labels and annotations change, `label_changes` are these, as `unreserved_changes` returns them.
    """

    tree: Tree
    entries: Entries
    label_changes: Tree | None = None


def create(request: ApplyRequest, sent: Tree, time: str) -> Applied:
    """Make a new object of `sent`, the configuration and the fields beside it that nobody owns. Raises `UnknownError`
    for list elements that cannot be told apart.
    """
    own = _declared(request, _known_spec(request)).own
    tree = deep_copy(sent)
    fit_tree(tree, request.kind.schema, nulls=True)
    return Applied(tree, [request.author.entry_in_order(own, time)] if own else [])


def change(request: ApplyRequest, live: Tree, entries: Entries, versions: Versions, time: str) -> Applied:
    """Apply the configuration to an object, and remove what this applier once applied and nobody owns any more.

    Raises `Conflict` for fields it would change that others own, `BadRequest` if no metadata would be left, and
    `UnknownError` as `create` does.
    """
    known = _known_spec(request)
    declared, own = _declared(request, known)
    entries = entries or _first_entries(request, live, time)
    versions.check(live, entries)
    mine = request.author.entry_in(entries)
    others = [entry for entry in entries if entry is not mine]
    same = mine is not None and mine["apiVersion"] == request.author.api_version and fields_of(mine) == own
    if same and (texts := _other_texts(request, live, known, others)) is not None:
        before = live["metadata"]
        renewed = in_order([*others, request.author.entry_in_order(own, time)])
        changes = unreserved_changes(texts, {name: before[name] for name in texts})
        return Applied({**live, "metadata": {**before, **texts}}, renewed, changes)
    tree = _merged(request, live, known)
    merged = tree.get("spec")
    abandoned = {} if same else _abandoned(mine, declared, request.author)
    if mine and abandoned:
        owners = [*others, request.author.entry_in_order(declared, time)]
        tree = _pruned(tree, abandoned, mine["apiVersion"], owners, versions)
        if "metadata" not in tree:
            raise BadRequest("the applied configuration would take away all metadata of the object, its name included")
    # What others own is compared with what was said, not with what that means: 1000m is another value than 1.
    comparison = Comparison(versions, live, tree)
    if not request.force:
        _check(request, live, _conflicts(others, comparison))
    left = disowned(others, comparison.changes_in)
    if own:
        is_changed = comparison.changes_in(request.author.api_version) != (None, None)
        since = time if is_changed else mine.get("time", "") if mine else ""
        left.append(mine if mine and same and not is_changed else request.author.entry_in_order(own, since))
    tree = _completed(tree, live, request.kind)
    if known is not None and tree.get("spec") is live.get("spec") is not merged and not abandoned:
        if len(known.left) >= _MOST_LEFT:
            known.left.clear()
        known.left.add(_DIGESTS.of(live.get("spec")))
    if request.author.manager == _KUBECTL:
        tree = with_last_applied(tree, request.config)
    left = in_order(left)
    return Applied(tree, entries if _differs_in_times(left, entries) and _is_same(tree, live) else left)


def _completed(tree: Tree, live: Tree, kind: ResourceInfo) -> Tree:
    """Return what a configuration makes of a live object, which fits its schema and has its defaults: one to change at
    will, all but its managed fields, which are never changed in place, and the parts that it shares with the live one.
    """
    if may_share(kind):
        share(tree, live, kind)
        own = detached(tree, live)
        fit_others(own, live, kind)
        return own
    own = _own(tree)
    fit_tree(own, kind.schema, nulls=True)
    apply_defaults(own, kind)  # which may fold what was applied into what was there
    return own


def _differs_in_times(entries: Entries, others: Entries) -> bool:
    """Tell whether entries are others but for their times."""
    return entries != others and _without_times(entries) == _without_times(others)


def _without_times(entries: Entries) -> Entries:
    return [{name: value for name, value in entry.items() if name != "time"} for entry in entries]


def _is_same(tree: Tree, live: Tree) -> bool:
    """Tell whether an object is the live one but for its managed fields: what was applied was another spelling of what
    is there, such as the `stringData` of a secret.
    """
    return equal(_beside_entries(tree), _beside_entries(live))


def _beside_entries(tree: Tree) -> Tree:
    metadata = {name: value for name, value in tree["metadata"].items() if name != "managedFields"}
    return {**tree, "metadata": metadata}


def _own(tree: Tree) -> Tree:
    """Return a copy to change at will, all but its managed fields."""
    metadata = dict(tree["metadata"])
    entries = metadata.pop("managedFields", None)
    copy: Tree = deep_copy({**tree, "metadata": metadata})
    if entries is not None:
        copy["metadata"]["managedFields"] = entries
    return copy


def _known_spec(request: ApplyRequest) -> AppliedSpec | None:
    """Return what is known of the spec of a configuration; None if it has none that anything could be known of."""
    spec = request.config.get("spec")
    if type(spec) is not dict or request.kind.custom:
        return None
    if request.spec is not None:
        return request.spec
    return applied_spec(request.kind.schema, msgspec.json.encode(spec))


def _merged(request: ApplyRequest, live: Tree, known: AppliedSpec | None) -> Tree:
    """Return the live object with the configuration merged into it. Its spec is the very same where that is known to be
    left as it is.
    """
    config = request.config
    if _leaves_spec(known, live):
        config = _beside_spec(config)
    merged: Tree = type_of(request.kind.schema).merge(live, config)
    return merged


def _leaves_spec(known: AppliedSpec | None, live: Tree) -> bool:
    return known is not None and bool(known.left) and _DIGESTS.of(live.get("spec")) in known.left


def _other_texts(request: ApplyRequest, live: Tree, known: AppliedSpec | None, others: Entries) -> Tree | None:
    """Return labels and annotations, those with other texts, if that is all that comes of a configuration whose fields
    its applier owns already, and owns alone; None if nothing does, or more.
    """
    metadata, before = request.config["metadata"], live["metadata"]
    if not may_share(request.kind):
        return None
    for name, part in request.config.items():
        is_left = name == "metadata" or (name == "spec" and _leaves_spec(known, live))
        if not is_left and (part is None or part != live.get(name)):
            return None
    texts: Tree = {}
    fields: Fields = {}
    for name, value in metadata.items():
        if (there := before.get(name)) == value:
            continue
        if name not in LABELS or type(value) is not dict or type(there) is not dict:
            return None
        changed = {key: text for key, text in value.items() if there.get(key) != text}
        if not all(type(text) is str and key in there for key, text in changed.items()):
            return None
        if not changed:
            continue
        texts[name] = {**there, **changed}
        fields[to_field(name)] = {to_field(key): LEAF for key in changed}
    if not texts or (request.author.manager == _KUBECTL and _LAST_APPLIED in (before.get("annotations") or {})):
        return None
    whole = {"f:metadata": fields}
    for entry in others:
        if entry["apiVersion"] != request.author.api_version or intersection(fields_of(entry), whole):
            return None
    return texts


class _Digests:
    """The digests of trees, which nobody changes in place; those of some that are not long are known."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}  # with the trees, so that no others are in their places

    def of(self, tree: Any) -> bytes:
        known = self._known.get(id(tree))
        if known is not None:
            return known[1]
        data = orjson.dumps(tree)
        digest = blake2b(data, digest_size=16).digest()
        if len(data) <= LONGEST:
            if len(self._known) >= _MOST_DIGESTS:
                self._known.clear()
            self._known[id(tree)] = tree, digest
        return digest


_DIGESTS = _Digests()


def _beside_spec(tree: Tree) -> Tree:
    return {name: value for name, value in tree.items() if name != "spec"}


def _declared(request: ApplyRequest, known: AppliedSpec | None) -> Declaration:
    """Return what a configuration declares; it is known of one with a spec and names that were applied before."""
    config = request.config
    if known is None:
        return _declaration(config, request.kind.schema)
    beside = beside_spec(config)
    found = known.declared.get(beside)
    if found is None:
        if len(known.declared) >= _MOST_DECLARED:
            known.declared.clear()
        found = known.declared[beside] = _declaration(config, request.kind.schema, spec=config["spec"])
    return found


def _declaration(config: Tree, schema: Schema, spec: Tree | None = None) -> Declaration:
    """Return what a configuration declares. The fields of its `spec` may be known."""
    try:
        if spec is None:
            fields = type_of(schema).declared(config)
        else:
            fields = {**type_of(schema).declared(_beside_spec(config)), **_declared_in_spec(spec, schema)}
            fields = {step: fields[step] for step in sorted(fields)}
    except IndistinctError as problem:
        raise UnknownError(f"the applied configuration is ambiguous: {render(problem.path)}: {problem.why}") from None
    return Declaration(fields, difference(fields, _UNOWNED_FIELDS))


def _declared_in_spec(spec: Tree, schema: Schema) -> Fields:
    """Return the fields that a spec declares, itself included, which are the same whatever its free texts are."""
    known = schema.derived(_declared_specs).of(without_free_text(spec))
    if not known:
        known.update(type_of(schema).declared({"spec": spec}))
    return known


def _declared_specs(_schema: Schema) -> Findings[Fields]:
    return Findings(Fields, most=256)


def _first_entries(request: ApplyRequest, live: Tree, time: str) -> Entries:
    """Return managed fields for an object that has none: its fields, as far as the request may write them, are owned by
    a manager of before.
    """
    written = writable(live, request.kind.strategy, request.author.subresource)
    fields = type_of(request.kind.schema).initial(owned_part(written))
    author = request.author._replace(manager=_BEFORE_FIRST_APPLY, operation=UPDATE)
    return [author.entry_in_order(fields, time)] if fields else []


def _abandoned(mine: Entry | None, declared: Fields, author: FieldManager) -> Fields:
    """Return what an applier owned and, as far as its version can tell, does not apply any more."""
    if mine is None:
        return {}
    fields = fields_of(mine)
    return difference(fields, declared) if mine["apiVersion"] == author.api_version else fields


def _pruned(tree: Tree, abandoned: Fields, api_version: str, owners: Entries, versions: Versions) -> Tree:
    """Return `tree` without the given fields of a version, but for what one of the `owners` has."""
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
    # What others have of an object brings back all of it that the applier never applied.
    return last.back(last.typed.prune(whole, abandoned, last.typed.initial(last.into(left))))


def _conflicts(others: Entries, comparison: Comparison) -> list[_FieldConflict]:
    """Return the fields of others that an apply would change."""
    found: list[_FieldConflict] = []
    for entry in sorted(others, key=identity_of):
        changes = comparison.changes_in(entry["apiVersion"])
        if changes is not None and changes.changed:
            found.extend((entry, path) for path in paths(intersection(fields_of(entry), changes.changed)))
    return found


def _check(request: ApplyRequest, live: Tree, conflicts: list[_FieldConflict]) -> None:
    """Raises `Conflict` for all fields that others would lose."""
    if conflicts and request.author.manager == _KUBECTL:
        ours = _last_applied(live, request.kind.schema)
        conflicts = [(entry, path) for entry, path in conflicts if not intersection(of(path), ours)]
    if not conflicts:
        return
    reported = list(_reported(conflicts))
    causes = [Cause(reason="FieldManagerConflict", message=f"conflict with {_manager_name(entry)}", field=field)
              for entry, field in reported]  # fmt: skip
    raise Conflict(_conflict_message(reported, len(conflicts)), Details(causes=tuple(causes)))


def _reported(conflicts: list[_FieldConflict]) -> Iterator[tuple[Entry, str]]:
    """Yield the entries and fields of the conflicts that an answer has room for, of one at least."""
    room = _LONGEST_REPORT
    for entry, path in conflicts[:_MOST_REPORTED]:
        yield entry, (field := render(path))
        room -= len(field)
        if room < 0:
            return


def _conflict_message(reported: list[tuple[Entry, str]], count: int) -> str:
    if count == 1:
        ((entry, field),) = reported
        return f"Apply failed with 1 conflict: conflict with {_manager_name(entry)}: {field}"
    lines: list[str] = []
    known: Entry | None = None
    for entry, field in reported:
        if entry is not known:
            lines.append(f"conflicts with {_manager_name(entry)}:")
            known = entry
        lines.append(f"- {field}")
    if count > len(reported):
        lines.append(f"and {count - len(reported)} more")
    return f"Apply failed with {count} conflicts: " + "\n".join(lines)


def _manager_name(entry: Entry) -> str:
    name = f'"{entry.get("manager", "")}"'
    if entry.get("subresource"):
        name += f' with subresource "{entry["subresource"]}"'
    return f"{name} using {entry['apiVersion']}" if entry["operation"] == UPDATE else name


def _last_applied(live: Tree, schema: Schema) -> Fields:
    """Return the fields that client-side apply recorded in its annotation and that have kept their values: to take them
    is no conflict. There are none if the annotation holds no object of the same version.
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
    """Return the object with the annotation of client-side apply, if it has one, as if that had applied `applied`."""
    annotations = get_in(tree, ("metadata", "annotations")) or {}
    if not annotations.get(_LAST_APPLIED):
        return tree
    metadata = applied["metadata"]
    ours = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != _LAST_APPLIED}
    said = {**applied, "metadata": {**metadata, "annotations": ours}}
    text = orjson.dumps(said, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
    rest = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
    whole = {**rest, _LAST_APPLIED: text}
    return {**tree, "metadata": {**tree["metadata"], "annotations": whole if fit(whole) else rest}}
