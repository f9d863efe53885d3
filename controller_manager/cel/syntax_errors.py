"""Tells what is wrong with a text that is no expression."""

from __future__ import annotations

from controller_manager.cel.syntax import Issue


def syntax_errors(text: str) -> list[Issue]:
    """Return at least one issue."""
    return [Issue(1, 1, "Syntax error")]
