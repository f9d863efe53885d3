"""What every change of an existing object goes through between the caller's edit and the commit; no I/O."""

from collections.abc import Callable
from functools import partial

from apiserver_stub.call import APIRequest, Item, Reply, Tree
from apiserver_stub.kinds.defaults import apply_defaults
from apiserver_stub.kinds.validate import validate
from apiserver_stub.kinds.warnings import warnings_of
from apiserver_stub.verbs.create import check_namespace
from apiserver_stub.verbs.decode import Warnings
from apiserver_stub.verbs.field_management import ManageFields, manage_changed_fields
from apiserver_stub.verbs.guaranteed_update import Fresh, Write, guaranteed_update
from apiserver_stub.verbs.scope import RequestScope, attributes_of
from apiserver_stub.verbs.storage import mismatch, stale
from controller_manager.api.errors import Cause, invalid

# From the current state to the wanted one, fitted to its schema.
Edit = Callable[[Fresh], tuple[Tree, Warnings]]


async def revise(
    scope: RequestScope,
    call: APIRequest,
    edit: Edit,
    shown: Callable[[bytes], bytes] | None = None,
    manage_fields: ManageFields | None = None,
) -> Reply:
    """Change the object of the call, and answer with it or with what `shown` makes of it.

    `manage_fields` records who owns what in the changed object; without it the caller owns what the edit changed.
    """
    revision = Revision(scope, call, edit, manage_fields or partial(manage_changed_fields, scope, call))
    outcome = await guaranteed_update(scope, call, revision)
    if shown is None:
        return Reply(Item(outcome.data), 200, revision.warnings)
    return Reply(Item(shown(outcome.data)), 200, revision.warnings)


class Revision:
    """Decides for `guaranteed_update`: edit, hold to what the caller presumed, default, admit, prepare, manage fields,
    validate, allocate.

    The change that takes away the last hold of an object under deletion removes it.
    """

    def __init__(self, scope: RequestScope, call: APIRequest, edit: Edit, manage_fields: ManageFields) -> None:
        self._scope = scope
        self._call = call
        self._edit = edit
        self._manage_fields = manage_fields
        self.warnings: Warnings = ()

    async def __call__(self, fresh: Fresh) -> Write | None:
        """The state to write, or None when nothing changes."""
        call, scope = self._call, self._scope
        new, old = await fresh.run(partial(self._edited, fresh))
        attributes = attributes_of(call, "update", new, old)
        await scope.admission.mutate(attributes)
        if not await fresh.run(partial(self._completed, new, old)):
            return None
        await scope.admission.validate(attributes)
        return Write(new, self._ends(new, old), partial(scope.admission.allocate, attributes))

    def _edited(self, fresh: Fresh) -> tuple[Tree, Tree]:
        """The new state as admission sees it, and the old one."""
        old = fresh()
        new, self.warnings = self._edit(fresh)
        self._presume(new["metadata"], old["metadata"])
        check_namespace(self._call, new["metadata"])
        apply_defaults(new, self._call.kind)
        return new, old

    def _completed(self, new: Tree, old: Tree) -> bool:
        """Whether the new state is another one; then it keeps all rules."""
        call, kind = self._call, self._call.kind
        self._prepare(new, old)
        self._manage_fields(new, old)
        if new == old:
            return False
        problems = validate(kind, new, old, call.part)
        if problems:
            raise invalid(kind.group, kind.kind, call.name, problems)
        self.warnings = (*self.warnings, *warnings_of(kind, new, old, call.part))
        return True

    def _presume(self, metadata: Tree, current: Tree) -> None:
        """Hold to the version and uid the caller names; afterwards the tree has those of the current state."""
        version = metadata.get("resourceVersion", "")
        if version in ("", "0"):
            self._check_unconditional()
        elif version != current["resourceVersion"]:
            raise stale(self._call)
        metadata["resourceVersion"] = current["resourceVersion"]
        uid: str = metadata.get("uid") or current["uid"]
        if uid != current["uid"]:
            raise mismatch(self._call, "UID", uid, current["uid"])
        metadata["uid"] = uid

    def _check_unconditional(self) -> None:
        kind = self._call.kind
        if not kind.strategy.unconditional_update:
            message = "Invalid value: must be specified for an update"
            cause = Cause(reason="FieldValueInvalid", message=message, field="metadata.resourceVersion")
            raise invalid(kind.group, kind.kind, self._call.name, [cause])

    def _prepare(self, new: Tree, old: Tree) -> None:
        strategy, part = self._call.kind.strategy, self._call.subresource
        if part is not None and strategy.serves(part.name):
            strategy.prepare_subresource(part.name, new, old)
        else:
            strategy.prepare_update(new, old)

    def _ends(self, new: Tree, old: Tree) -> bool:
        metadata = old["metadata"]
        if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
            return False
        return not self._call.kind.strategy.still_held(new)
