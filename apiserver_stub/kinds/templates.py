"""Objects of one template: nothing that is judged of a new one is another but the name. So if one is sound, all are."""

from types import MappingProxyType

import msgspec
import orjson

from apiserver_stub.kinds import names
from apiserver_stub.kinds.findings import Findings, without_drawn, without_free_text
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema import Tree

_UNJUDGED = MappingProxyType({"time": None, "fieldsV1": None})  # of what managers own
_ENCODER = msgspec.json.Encoder()


class Template:
    """Whether a new object was found `sound`, as whoever judged it notes; and then, once another one was prepared, what
    becomes of the status of all, in JSON, if preparing leaves their specs as they were admitted.
    """

    __slots__ = ("_status", "sound")

    def __init__(self) -> None:
        self.sound = False
        self._status: bytes | None = None

    def prepare(self, kind: ResourceInfo, new: Tree) -> bool:
        """Prepare an object, in place, if it is known what that makes of it; return whether it was."""
        if not self._status:
            return False
        kind.strategy.begin_metadata(new["metadata"])
        new["status"] = orjson.loads(self._status)
        return True

    def note(self, spec: bytes, prepared: Tree) -> None:
        """Note what preparing has made of a sound object with this spec."""
        if self._status is None:
            is_kept = spec == _ENCODER.encode(prepared.get("spec"))
            self._status = _ENCODER.encode(prepared["status"]) if is_kept and "status" in prepared else b""


_TEMPLATES = Findings(Template, most=256)
_SAME = Findings(list[Template], most=64)  # the template of objects that are the same to the last byte


def template_of(kind: ResourceInfo, new: Tree) -> tuple[Template | None, bytes]:
    """Return what is known of new objects like an admitted one, which is to be prepared yet, and its spec in JSON.
    Nothing is known of kinds whose rules look at names for more than their form, and of names that somebody might
    complain of.
    """
    metadata = new["metadata"]
    name = metadata.get("name")
    if not kind.rules.any_label or (name and names.label(name)):
        return None, b""
    common = metadata.copy()
    common["name"] = not name
    if entries := metadata.get("managedFields"):
        common["managedFields"] = [{**entry, **_UNJUDGED} for entry in entries]
    beside = _ENCODER.encode({**new, "metadata": common, "spec": None})
    spec = _ENCODER.encode(new.get("spec"))
    known = _SAME.of(b"%b\n%b" % (without_drawn(spec), beside), kind.serial)
    if not known:
        judged = without_drawn(without_free_text(new.get("spec") or {}))
        known.append(_TEMPLATES.of(b"%b\n%b" % (judged, beside), kind.serial))
    return known[0], spec
