"""Objects of one template: nothing that is judged of a new one is another but the name. So if one is sound, all are."""

from apiserver_stub.kinds import names
from apiserver_stub.kinds.findings import Soundness, SoundSpecs
from apiserver_stub.kinds.resource_info import ResourceInfo
from apiserver_stub.kinds.schema import Tree

_OF_TEMPLATES = SoundSpecs(most=256)
_OWN = frozenset({"name", "managedFields"})
_OF_MANAGERS = ("manager", "operation", "subresource", "fieldsType")


def soundness_of(kind: ResourceInfo, new: Tree) -> Soundness | None:
    """Return whether new objects like an admitted one are sound, which is to be prepared yet. None of kinds whose rules
    look at names for more than their form, and of names that somebody might complain of.
    """
    metadata = new["metadata"]
    name = metadata.get("name")
    if not kind.rules.any_label or (name and names.label(name)):
        return None
    common = {member: value for member, value in metadata.items() if member not in _OWN}
    managers = ((entry.get(member) for member in _OF_MANAGERS) for entry in metadata.get("managedFields") or ())
    return _OF_TEMPLATES.find({**new, "metadata": common}, (kind.serial, not name, *map(tuple, managers)))
