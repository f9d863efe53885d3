"""Helpers that normalize OpenAPI documents for comparison."""

from typing import Any


def without_descriptions(tree: Any) -> Any:
    """Return a tree without descriptions."""
    if isinstance(tree, dict):
        kept = {key: value for key, value in tree.items() if key != "description" or not isinstance(value, str)}
        return {key: without_descriptions(value) for key, value in kept.items()}
    return [without_descriptions(one) for one in tree] if isinstance(tree, list) else tree


def without_empty_defaults(tree: Any) -> Any:
    """Return a tree without the defaults that are empty objects."""
    if isinstance(tree, dict):
        return {key: without_empty_defaults(value) for key, value in tree.items() if key != "default" or value != {}}
    return [without_empty_defaults(one) for one in tree] if isinstance(tree, list) else tree
