"""Reads YAML from untrusted sources: plain data of limited size. Error messages do not quote the text."""

import math
from typing import Any

import yaml

_MOST_NODES = 100_000  # aliases are counted as often as they are used
_QUOTE = "'\""


class NotPlain(ValueError):
    """The text is rejected. The message says where and why, and does not quote the text."""


def read_yaml(text: bytes | str, *, unique_keys: bool = False) -> Any:
    """Return the single document of a text, None for an empty text. With `unique_keys`, a duplicate key is an error.

    Raises NotPlain.
    """
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if root is None:
            return None
        if _size(root, {}) > _MOST_NODES:
            raise NotPlain(f"it stands for more than {_MOST_NODES} values")
        if unique_keys:
            _look_for_twins(root)
        return yaml.SafeLoader("").construct_document(root)
    except RecursionError:
        raise NotPlain("it is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        raise NotPlain(_where(error.problem_mark, _unquoted(error.problem or "it cannot be read"))) from None
    except yaml.YAMLError:
        raise NotPlain("it is no text that YAML can be") from None
    except NotPlain:
        raise
    except (ValueError, LookupError, AttributeError, TypeError):  # of numbers, times and tags
        raise NotPlain("a value in it is not what it looks like") from None


def without_nulls(tree: Any) -> Any:
    """Return a tree without the fields that are null: to Go they are absent."""
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    return [without_nulls(item) for item in tree] if isinstance(tree, list) else tree


def _size(node: yaml.Node, known: dict[int, float]) -> float:
    """Return the number of nodes of a tree, infinite for a tree that contains itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        known[id(node)] = 1 + sum(_size(child, known) for child in _children(node))
    return known[id(node)]


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _look_for_twins(node: yaml.Node) -> None:
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in keys:
                raise NotPlain(_where(key.start_mark, "a key is there twice"))
            keys.add(str(key.value))
    for child in _children(node):
        _look_for_twins(child)


def _where(mark: yaml.Mark | None, problem: str) -> str:
    return f"line {mark.line + 1}: {problem}" if mark else problem


def _unquoted(problem: str) -> str:
    """Return the problem without the part that quotes the text."""
    end = min((at for quote in _QUOTE if (at := problem.find(quote)) >= 0), default=len(problem))
    return problem[:end].removeprefix("but ").rstrip(" ,:").removesuffix(", but found")
