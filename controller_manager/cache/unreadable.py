"""The objects that an informer leaves out because they do not fit their type; each is told once."""

from collections.abc import Mapping

from controller_manager.api.resource import Key
from controller_manager.base.log import Logger


class UnreadableObjects:
    """By key, why each can't be read. Objects whose names can't be read either share the empty key."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._why: dict[Key, str] = {}

    def __len__(self) -> int:
        return len(self._why)

    def sentences(self) -> tuple[str, ...]:
        """Each object with the reason."""
        return tuple(f"{_name(key)}: {why}" for key, why in self._why.items())

    def add(self, key: Key, why: str) -> None:
        """That object can't be read now."""
        if key not in self._why:
            self._log.warning("an object can't be read and is left out", object=_name(key), error=why)
        self._why[key] = why

    def discard(self, key: Key) -> None:
        """That object can be read now, or is gone."""
        if self._why.pop(key, None) is not None:
            self._log.info("an object that could not be read is gone or can be read now", object=_name(key))

    def replace(self, found: Mapping[Key, str]) -> None:
        """These are all there are."""
        for key in self._why.keys() - found.keys():
            self.discard(key)
        for key, why in found.items():
            self.add(key, why)


def _name(key: Key) -> str:
    return str(key) or "without a readable name"
