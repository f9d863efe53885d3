"""What is stored of objects that are created again and again. Once two were stored that differ in nothing but what each
has of its own (name, uid, time, the drawn name of a volume), those that follow are written in their form, without being
decoded, admitted, judged and encoded again.
"""

from collections.abc import Hashable, Sequence

from msgspec import Raw, Struct

from apiserver_stub.admission import Attributes, StandingVerdict
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.findings import DRAWN_VOLUME, WITHOUT_NAME, without_drawn
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.storage.interface import Compare
from apiserver_stub.verbs.standing import StandingFindings
from apiserver_stub.verbs.storage import for_storage
from apiserver_stub.watch_cache.cache import WatchCache
from apiserver_stub.watch_cache.joint_commits import Also
from controller_manager.serving.authentication import User

_BLANKS = {field: Raw(b"\1%b\1" % field) for field in (b"name", b"uid", b"time")}  # no JSON has such bytes
_VOLUME = b'"%(volume)b"'


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
    written. `prefix` is what their names begin with, if the server draws them, and `has_volume` says that it draws the
    name of a volume.
    """

    json: bytes
    author: User
    verdict: StandingVerdict
    also: Sequence[Compare]
    prefix: str
    has_volume: bool
    sure: bool = False

    def fill(self, name: str, uid: str, time: str, drawn: str = "") -> bytes:
        """Return the JSON of an object; `drawn` ends the name of its volume."""
        volume = f"{DRAWN_VOLUME}{drawn}".encode()
        return self.json % {b"name": name.encode(), b"uid": uid.encode(), b"time": time.encode(), b"volume": volume}


class ObjectForms:
    """The forms of bodies that were sent again and again."""

    def __init__(self, store: WatchCache, most: int = 64) -> None:
        self._found: StandingFindings[ObjectForm] = StandingFindings(store, most)

    def __len__(self) -> int:
        return len(self._found)

    def find(self, place: Hashable) -> ObjectForm | None:
        """Return a form that is sure."""
        found = self._found.get(place)
        return found if found is not None and found.sure else None

    def note(self, place: Hashable, kind: ResourceInfo, made: Made, verdict: StandingVerdict, began: int) -> None:
        """Note what became of an object that is at this place; `began` is the revision before admission was asked."""
        also = [one for one in made.also if isinstance(one, Compare)]
        json = form_of(kind, made) if len(also) == len(made.also) else None
        if json is None:
            return
        known, author = self._found.get(place), made.attributes.user
        prefix = made.tree["metadata"].get("generateName") or ""
        sure = known is not None and (known.json, known.author) == (json, author)
        self._found.put(place, ObjectForm(json, author, verdict, also, prefix, _VOLUME in json, sure), verdict, began)


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
    return json.replace(WITHOUT_NAME, _VOLUME)
