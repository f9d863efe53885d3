"""Specs of pods that were found sound before. A controller makes thousands of pods of one template, each update of a
workload brings its template again, and what is said of a spec follows from the spec alone.
"""

from functools import lru_cache

import msgspec

from apiserver_stub.kinds.schema import Tree

DRAWN_VOLUME = "kube-api-access-"
"""What the names of the volumes begin with that admission adds to pods; five drawn letters follow."""
_MOST = 512  # specs
_LONGEST = 16 * 1024  # bytes of one
_DRAWN = b'"%b' % DRAWN_VOLUME.encode()
_DRAWN_LENGTH = len(_DRAWN) + 6
_ENCODER = msgspec.json.Encoder()


class Finding:
    """Whether a spec was found `sound`, as whoever looks at it notes."""

    __slots__ = ("sound",)

    def __init__(self) -> None:
        self.sound = False


class SoundSpecs:
    """The findings of one way to look at specs, by their bytes: the last few hundred."""

    def __init__(self) -> None:
        self._find = lru_cache(_MOST)(_finding)

    def find(self, spec: Tree, beside: tuple[str, ...] = ()) -> Finding:
        """Return the finding of a spec, judged with the texts `beside` it. It is the same for specs in which only the
        drawn name of one volume is another, and nobody else's for one that is large.
        """
        data = _ENCODER.encode(spec)
        return Finding() if len(data) > _LONGEST else self._find(_without_drawn(data), beside)


def _finding(_data: bytes, _beside: tuple[str, ...]) -> Finding:
    return Finding()


def _without_drawn(data: bytes) -> bytes:
    """Return the bytes of a spec with another text for the first drawn name, wherever exactly that stands: one that no
    spec has. So which names are equal is the same as before, and a name of that form is as good as another.
    """
    at = data.find(_DRAWN)
    if at < 0:
        return data
    name = data[at : at + _DRAWN_LENGTH]
    drawn = name[len(_DRAWN) : -1]
    return data.replace(name, b'"\0"') if name.endswith(b'"') and drawn.isalnum() and drawn.islower() else data
