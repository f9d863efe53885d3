"""What is stored of objects that are created again and again. Once two were stored that differ in nothing but what each
has of its own (name, uid, time, the drawn name of a volume), those that follow are written in their form, without being
decoded, admitted, judged and encoded again.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

from msgspec import Raw, Struct

from apiserver_stub.admission import Attributes, StandingVerdict
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.findings import DRAWN_VOLUME, WITHOUT_NAME, without_drawn
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.storage.interface import Compare, TooOld
from apiserver_stub.verbs.storage import for_storage
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.joint_commits import Also
from apiserver_stub.watch_cache.row import Change, Row
from controller_manager.serving.authentication import User

_BLANKS = {field: Raw(b"\1%b\1" % field) for field in (b"name", b"uid", b"time")}  # no JSON has such bytes


class Made(Struct, frozen=True):
    """A new object as it was written: like one of its template that was prepared before, so that its `spec` is known in
    JSON; what admission saw last, and what it wrote or compared besides.
    """

    tree: Tree
    spec: bytes
    attributes: Attributes
    also: Sequence[Also]


class ObjectForm(Struct):
    """The form of objects of which their `author` sends the same for all but their names: JSON with blanks, which is
    `sure` once two came out so. It holds as long as the `verdict` of admission stands; `also` must hold when they are
    written. `prefix` is what their names begin with, if the server draws them.
    """

    json: bytes
    author: User
    verdict: StandingVerdict
    also: Sequence[Compare]
    prefix: str
    sure: bool = False

    def fill(self, name: str, uid: str, time: str, drawn: str) -> bytes:
        """Return the JSON of an object; `drawn` ends the name of its volume."""
        volume = f"{DRAWN_VOLUME}{drawn}".encode()
        return self.json % {b"name": name.encode(), b"uid": uid.encode(), b"time": time.encode(), b"volume": volume}


class ObjectForms:
    """The forms of the `most` bodies that were sent last, for as long as they hold."""

    def __init__(self, store: WatchCache, most: int = 64) -> None:
        self.most = most
        self._store = store
        self._forms: OrderedDict[Hashable, ObjectForm] = OrderedDict()
        self._read: frozenset[str] = frozenset()  # resources that any of them depends on
        store.subscribe(self._hear)

    def __len__(self) -> int:
        return len(self._forms)

    def find(self, place: Hashable) -> ObjectForm | None:
        """Return a form that is sure."""
        found = self._forms.get(place)
        if found is None or not found.sure:
            return None
        self._forms.move_to_end(place)
        return found

    def note(self, place: Hashable, kind: ResourceInfo, made: Made, verdict: StandingVerdict, began: int) -> None:
        """Note what became of an object that is at this place; `began` is the revision before admission was asked."""
        attributes, metadata = made.attributes, made.tree["metadata"]
        also = [one for one in made.also if isinstance(one, Compare)]
        form = None if len(also) < len(made.also) or self._has_changed(verdict, began) else form_of(kind, made)
        if form is None:
            return
        known = self._forms.get(place)
        self._forms[place] = ObjectForm(
            form,
            attributes.user,
            verdict,
            also,
            metadata.get("generateName") or "",
            sure=known is not None and (known.json, known.author) == (form, attributes.user),
        )
        self._forms.move_to_end(place)
        if len(self._forms) > self.most:
            self._forms.popitem(last=False)
        self._note_reads()

    def _has_changed(self, verdict: StandingVerdict, began: int) -> bool:
        """Return whether the verdict may be on what was otherwise before."""
        try:
            return any(
                _looks_at(verdict, change.row)
                for history in {self._store.history(resource) for resource, _ in verdict.reads}
                for change in history.since(history.position(began))
            )
        except TooOld:
            return True

    def _hear(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.row.resource in self._read:
                self._forget(change.row)

    def _forget(self, row: Row) -> None:
        for place in [place for place, form in self._forms.items() if _looks_at(form.verdict, row)]:
            del self._forms[place]
        self._note_reads()

    def _note_reads(self) -> None:
        self._read = frozenset(resource for form in self._forms.values() for resource, _ in form.verdict.reads)


def _looks_at(verdict: StandingVerdict, row: Row) -> bool:
    return any(row.resource == resource and row.key.startswith(key) for resource, key in verdict.reads)


def form_of(kind: ResourceInfo, made: Made) -> bytes | None:
    """Return what was stored of an object, with blanks; None if there is something about its owners."""
    metadata = made.tree["metadata"]
    entries = metadata.get("managedFields") or []
    if any(entry.get("time") != metadata["creationTimestamp"] for entry in entries):
        return None
    blank = {
        **metadata,
        "name": _BLANKS[b"name"],
        "uid": _BLANKS[b"uid"],
        "creationTimestamp": _BLANKS[b"time"],
        "managedFields": [{**entry, "time": _BLANKS[b"time"]} for entry in entries],
    }
    if not entries:
        del blank["managedFields"]
    json = for_storage(kind, {**made.tree, "metadata": blank}, without_drawn(made.spec)).replace(b"%", b"%%")
    for field, raw in _BLANKS.items():
        json = json.replace(bytes(raw), b'"%%(%b)b"' % field)
    return json.replace(WITHOUT_NAME, b'"%(volume)b"')
