"""Warnings of an object that breaks no rule: deprecated fields, values that are read otherwise."""

from apiserver_stub.kinds.warnings.kinds import deprecated_kind, warnings_of

__all__ = ["deprecated_kind", "warnings_of"]
