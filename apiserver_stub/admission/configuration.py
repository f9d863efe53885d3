"""The configurations of plugins, by their names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T")


class AdmissionConfiguration:
    """The documents that plugins are given."""

    def __init__(self, documents: Mapping[str, object] = MappingProxyType({})) -> None:
        self._documents = documents

    def document(self, plugin: str, types: Mapping[str, type[T]]) -> T | None:
        """Return the document of a plugin, which is one of the `types`; None if there is none."""
        found = self._documents.get(plugin)
        return next((found for form in types.values() if isinstance(found, form)), None)
