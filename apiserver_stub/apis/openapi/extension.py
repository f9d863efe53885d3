"""OpenAPI 2 documents of extension servers: reduced to one group version, and merged into ours. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from apiserver_stub.apis.openapi import gnostic

DEFINITIONS, _PARAMETERS = "#/definitions/", "#/parameters/"
_NO_TEXT = frozenset({"description"})


class GroupPaths(NamedTuple):
    """The paths of one group version, and the definitions they need."""

    paths: Mapping[str, Any]
    definitions: Mapping[str, Any]


def part_of(document: Any, root: str) -> GroupPaths:
    """Return the part of a document below `root`, as far as this server supports it.

    Raises ValueError for an invalid document.
    """
    if not isinstance(document, dict) or not isinstance(document.get("paths"), dict):
        raise ValueError("it has no paths")
    paths = {path: item for path, item in document["paths"].items() if f"{path}/".startswith(f"{root}/")}
    shared = document.get("parameters")
    try:
        fitted_paths = gnostic.fitted(gnostic.V2, "Paths", _inlined(paths, shared if isinstance(shared, dict) else {}))
        definitions = gnostic.fitted(gnostic.V2, "Document", {"definitions": document.get("definitions")})
        known = definitions.get("definitions", {})
        return GroupPaths(fitted_paths, {name: known[name] for name in _closure(_refs(fitted_paths), known)})
    except RecursionError:
        raise ValueError("it is too deep") from None


def merged(document: Mapping[str, Any], parts: Iterable[GroupPaths]) -> dict[str, Any]:
    """Return a document with the parts of extension servers merged in. Existing paths stay. A different definition with
    an existing name is renamed with a suffix: `_v2`, `_v3`.
    """
    paths, definitions = dict(document["paths"]), dict(document["definitions"])
    for part in parts:
        names = {name: _free(name, found, definitions) for name, found in part.definitions.items()}
        changed = {DEFINITIONS + name: DEFINITIONS + new for name, new in names.items() if name != new}
        for name, found in part.definitions.items():
            definitions.setdefault(names[name], _renamed(found, changed))
        for path, item in part.paths.items():
            paths.setdefault(path, _renamed(item, changed))
    return {**document, "paths": paths, "definitions": definitions}


def _free(name: str, found: Any, taken: Mapping[str, Any]) -> str:
    number, candidate, bare = 1, name, _bare(found)
    while candidate in taken and _bare(taken[candidate]) != bare:
        number += 1
        candidate = f"{name}_v{number}"
    return candidate


def _bare(tree: Any) -> Any:
    """Return a definition without descriptions."""
    if isinstance(tree, dict):
        return {key: _bare(value) for key, value in tree.items() if key not in _NO_TEXT or not isinstance(value, str)}
    return [_bare(one) for one in tree] if isinstance(tree, list) else tree


def _renamed(tree: Any, changed: Mapping[str, str]) -> Any:
    if not changed:
        return tree
    if isinstance(tree, dict):
        return {
            key: changed.get(value, value) if key == "$ref" and isinstance(value, str) else _renamed(value, changed)
            for key, value in tree.items()
        }
    return [_renamed(one, changed) for one in tree] if isinstance(tree, list) else tree


def _inlined(tree: Any, parameters: Mapping[str, Any]) -> Any:
    """Return paths with shared parameters of the document inlined."""
    if isinstance(tree, list):
        return [_inlined(one, parameters) for one in tree]
    if not isinstance(tree, dict):
        return tree
    ref = tree.get("$ref")
    if isinstance(ref, str) and ref.startswith(_PARAMETERS):
        return parameters.get(ref.removeprefix(_PARAMETERS), {})
    return {key: _inlined(value, parameters) for key, value in tree.items()}


def _closure(names: Iterable[str], known: Mapping[str, Any]) -> list[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in known and name not in found:
            found.add(name)
            waiting.extend(_refs(known[name]))
    return sorted(found)


def _refs(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(DEFINITIONS)
            else:
                yield from _refs(value)
    elif isinstance(tree, list):
        for one in tree:
            yield from _refs(one)
