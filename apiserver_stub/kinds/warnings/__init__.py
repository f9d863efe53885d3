"""Warnings about valid objects: deprecated fields, ignored or ambiguous values."""

from apiserver_stub.kinds.warnings.kinds import deprecated_kind, warnings_of

__all__ = ["deprecated_kind", "warnings_of"]
