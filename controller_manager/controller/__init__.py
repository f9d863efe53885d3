"""Floor 5: what an author of controllers imports; everything here is public, everything else of the floor is not."""

from controller_manager.api.resource import Key, key_of
from controller_manager.cache import Change, Informer, Informers
from controller_manager.controller.spec import Context, For, Mapped, Owned, Reconciler, Rule, Spec, Watch
from controller_manager.work import GiveUp, Requeue

__all__ = [
    "Change",
    "Context",
    "For",
    "GiveUp",
    "Informer",
    "Informers",
    "Key",
    "Mapped",
    "Owned",
    "Reconciler",
    "Requeue",
    "Rule",
    "Spec",
    "Watch",
    "key_of",
]
