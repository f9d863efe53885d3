"""Findings: what follows from a part of an object alone, kept by the bytes of that part. A controller makes thousands
of pods of one template, each update of a workload brings its template again, and appliers send the same many times.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from controller_manager.common.api.tree import Tree

T = TypeVar("T")
DRAWN_VOLUME = "kube-api-access-"
"""What the names of the volumes begin with that admission adds to pods; five drawn letters follow."""
LONGEST = 16 * 1024
"""Bytes of the longest part of which findings are kept."""
WITHOUT_NAME = b'"\0"'
"""What stands for a drawn name: no JSON has it."""
_DRAWN = b'"%b' % DRAWN_VOLUME.encode()
_DRAWN_LENGTH = len(_DRAWN) + 6
_ENCODER = msgspec.json.Encoder()
_WORDS = ("command", "args")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_TEMPLATES = ("template", "jobTemplate")


class Memo(Generic[T]):
    """The findings of one kind: of the last `most` parts that were looked at. `make` returns one of which nothing is
    known yet.
    """

    def __init__(self, make: Callable[[], T], most: int) -> None:
        self.most = most
        self._make = make
        self._find = lru_cache(most)(lambda _data, _beside: make())

    def of(self, data: bytes, beside: Hashable = None) -> T:
        """Return the finding of a part, in JSON, with what is `beside` it; nobody else's for one that is long."""
        return self._find(data, beside) if len(data) <= LONGEST else self._make()

    def clear(self) -> None:
        """Forget all."""
        self._find.cache_clear()


class Soundness:
    """Whether something was found `sound`, as whoever looks at it notes."""

    __slots__ = ("sound",)

    def __init__(self) -> None:
        self.sound = False


class SoundSpecs:
    """The findings of one way to look at specs of pods."""

    def __init__(self) -> None:
        self._findings = Memo(Soundness, most=512)

    def find(self, spec: Tree, beside: tuple[str, ...] = ()) -> Soundness:
        """Return the finding of a spec, judged with the texts `beside` it. It is the same for specs in which only
        what `without_free_text` leaves out, or the drawn name of one volume, is another.
        """
        return self._findings.of(without_drawn(without_free_text(spec)), beside)


def without_free_text(spec: Tree) -> bytes:
    """Return the spec of a pod, or one with templates of pods, in JSON without what containers may say freely: images,
    commands, arguments and values of variables, of which neither rules, warnings nor owners of fields ask more than
    whether they are there. What they do ask more of stays: an image with spaces around it, and a value that may refer
    to other variables. A spec as it is applied may have nulls, which stay, too.
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
    """Return the names alone of variables of which all else may be any text."""
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
    """Return the bytes of a spec with `WITHOUT_NAME` for the first drawn name, wherever exactly that stands. So which
    names are equal is the same as before, and a name of that form is as good as another.
    """
    at = data.find(_DRAWN)
    if at < 0:
        return data
    name = data[at : at + _DRAWN_LENGTH]
    drawn = name[len(_DRAWN) : -1]
    return data.replace(name, WITHOUT_NAME) if name.endswith(b'"') and drawn.isalnum() and drawn.islower() else data
