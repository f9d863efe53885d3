"""Select rows by namespace, name, labels, fields and shard."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from apiserver_stub.kinds.resource_info import ResourceInfo, SelectableField
from apiserver_stub.request.api_request import APIRequest
from apiserver_stub.watch_cache.row import Corrupt, Row
from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.selectors import MOST_CONDITIONS, FieldSelector, LabelSelector, Term
from controller_manager.common.api.sharding import ShardSelector

_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows in `namespace` (empty: all namespaces) that match all selectors, or the row called `name`.

    `fields` has the field conditions without the name, with the paths of stored objects. `exact` is a path and the
    value that all selected rows have there, or None.
    """

    namespace: str
    name: str
    labels: LabelSelector
    fields: FieldSelector
    exact: tuple[str, str] | None = None
    shard: ShardSelector | None = None

    @property
    def everything(self) -> bool:
        """Return whether the namespace is the only condition."""
        return not self.name and self.labels.empty and self.fields.empty and self.shard is None

    @property
    def trigger(self) -> tuple[str, str] | None:
        """The path and value that all selected rows share and that selects the fewest rows; None if there is no such
        path.
        """
        if self.name:
            return _NAME, self.name
        return self.exact or ((_NAMESPACE, self.namespace) if self.namespace else None)

    @property
    def conditions(self) -> int:
        """The number of conditions checked per row, plus one."""
        return 1 + len(self.labels.requirements) + len(self.fields.terms)

    def has(self, row: Row) -> bool:
        """Return whether a row is selected. Unreadable rows that could match are selected."""
        if self.name and row.name != self.name:
            return False
        try:
            if self.shard is not None and not row.is_in(self.shard):
                return False
            return self.fields.matches(row.field) and (self.labels.empty or self.labels.matches(row.labels))
        except Corrupt:
            return True


@dataclass(frozen=True, slots=True)
class _StoredFields(FieldSelector):
    """Conditions on stored objects. `fields` maps a path to the value that stands for an absent field."""

    fields: Mapping[str, SelectableField] = field(default_factory=dict)

    def matches(self, value_of: Callable[[str], str]) -> bool:
        """Return whether every condition holds."""
        return FieldSelector.matches(self, lambda path: value_of(path) or self._otherwise(path, value_of))

    def _otherwise(self, path: str, value_of: Callable[[str], str]) -> str:
        found = self.fields.get(path)
        if found is None:
            return ""
        return value_of(found.instead) if found.instead else found.absent


def select(request: APIRequest, *, shards: bool = False) -> Selection:
    """Return the selection of the path, `labelSelector`, `fieldSelector` and, with `shards`, `shardSelector`. Raises
    `ApiError`.
    """
    of_labels, of_fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    if LabelSelector.count_conditions(of_labels) + FieldSelector.count_conditions(of_fields) > MOST_CONDITIONS:
        why = "conditions on one label can be one condition with `in`"
        raise BadRequest(f"the selectors have more than {MOST_CONDITIONS} conditions; {why}")
    labels, fields = LabelSelector.parse(of_labels), FieldSelector.parse(of_fields)
    name = request.name or fields.exact(_NAME) or ""
    namespace = request.namespace or fields.exact(_NAMESPACE) or "" if request.kind.namespaced else ""
    by_name = Term(_NAME, True, name) if name else None
    rest = tuple(_as_stored(request.kind, term) for term in fields.terms if term != by_name)
    known = {found.path: found for found in request.kind.fields.values()} if rest else {}
    exact = next((found for term in rest if (found := _exact(term, known))), None)
    return Selection(namespace, name, labels, _StoredFields(rest, known), exact, _shard(request) if shards else None)


def _exact(term: Term, known: Mapping[str, SelectableField]) -> tuple[str, str] | None:
    """Return the path and value of a condition that holds exactly for rows with this value."""
    found = known.get(term.path)
    if not term.equal or found is None or found.instead or (found.absent and term.value in ("", found.absent)):
        return None
    return term.path, term.value


def _shard(request: APIRequest) -> ShardSelector | None:
    text = request.query.get("shardSelector", "")
    if not text:
        return None
    from apiserver_stub.verbs.shard_selector import parse_shard_selector  # imports CEL only when needed

    return parse_shard_selector(text)


def _as_stored(kind: ResourceInfo, term: Term) -> Term:
    if term.path == _NAME or (term.path == _NAMESPACE and (kind.namespaced or not kind.fields)):
        return term
    found = kind.fields.get(term.path)
    if found is None and kind.fields:
        raise BadRequest(f"field label not supported: {term.path}")
    if found is None:
        raise BadRequest(f'"{term.path}" is not a known field selector: only "{_NAME}", "{_NAMESPACE}"')
    return Term(found.path, term.equal, term.value)
