"""Cache results that depend only on a part of an object, keyed by the bytes of that part.

A controller creates thousands of pods from one template, each update of a workload repeats its template, and appliers
send the same object many times.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from controller_manager.common.api.tree import Tree

T = TypeVar("T")
DRAWN_VOLUME = "kube-api-access-"
"""The prefix of the names of volumes that admission adds to pods. Five random characters follow."""
LONGEST = 16 * 1024
"""The maximum size in bytes of a part whose result is cached."""
WITHOUT_NAME = b'"\0"'
"""Placeholder for a generated name. It is not valid JSON, so no part contains it."""
_DRAWN = b'"%b' % DRAWN_VOLUME.encode()
_DRAWN_LENGTH = len(_DRAWN) + 6
_ENCODER = msgspec.json.Encoder()
_WORDS = ("command", "args")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_TEMPLATES = ("template", "jobTemplate")


class Memo(Generic[T]):
    """LRU cache of results for the last `most` parts. `make` returns the result for a new part."""

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self.most = most
        self._make = make
        self._find = lru_cache(most)(lambda _data, _beside: make())

    def of(self, data: bytes, beside: Hashable = None) -> T:
        """Return the cached result for a part (JSON) and its key `beside`. Parts longer than `LONGEST` get a new,
        uncached result.
        """
        return self._find(data, beside) if len(data) <= LONGEST else self._make()

    def clear(self) -> None:
        """Empty the cache."""
        self._find.cache_clear()


class Soundness:
    """A flag that the caller sets to `sound` once a check has passed."""

    __slots__ = ("sound",)

    def __init__(self) -> None:
        self.sound = False


class SoundSpecs:
    """Cached results of one check of pod specs."""

    def __init__(self) -> None:
        self._findings = Memo(Soundness, most=512)

    def find(self, spec: Tree, beside: tuple[str, ...] = ()) -> Soundness:
        """Return the cached result for a spec and the strings `beside` it.

        Specs share a result if they differ only in what `without_free_text` omits or in the generated name of one
        volume.
        """
        return self._findings.of(without_drawn(without_free_text(spec)), beside)


def without_free_text(spec: Tree) -> bytes:
    """Return a pod spec, or a spec with pod templates, as JSON without free text of containers.

    Images, commands, arguments and values of variables are omitted: rules, warnings and field owners only need to know
    whether they are set. Images with surrounding spaces and values that may refer to other variables are included, and
    so are nulls, which an applied spec may have.
    """
    return _ENCODER.encode(_without_free_text(spec))


def _without_free_text(spec: Tree) -> Tree:
    found = spec.copy()
    for name in _CONTAINERS:
        if containers := spec.get(name):
            found[name] = [_container(container) for container in containers]
    for name in _TEMPLATES:
        if type(template := spec.get(name)) is dict and type(inner := template.get("spec")) is dict:
            found[name] = {**template, "spec": _without_free_text(inner)}
    return found


def _container(container: Tree | None) -> Tree | None:
    if container is None:
        return None
    found = container.copy()
    image = found.get("image")
    if image and image == image.strip():
        found["image"] = True
    for name in _WORDS:
        if found.get(name):
            found[name] = True
    if variables := found.get("env"):
        found["env"] = _without_values(variables)
    return found


def _without_values(variables: list[Tree | None]) -> list[Any]:
    """Replace each variable by its name if it has a literal value that refers to no other variable."""
    return [
        one["name"]
        if one is not None
        and len(one) == 2
        and type(value := one.get("value")) is str
        and "$(" not in value
        and "name" in one
        else one
        for one in variables
    ]


def without_drawn(data: bytes) -> bytes:
    """Replace the first generated volume name everywhere by `WITHOUT_NAME`.

    Equal names stay equal, and all generated names give the same result.
    """
    at = data.find(_DRAWN)
    if at < 0:
        return data
    name = data[at : at + _DRAWN_LENGTH]
    drawn = name[len(_DRAWN) : -1]
    return data.replace(name, WITHOUT_NAME) if name.endswith(b'"') and drawn.isalnum() and drawn.islower() else data
