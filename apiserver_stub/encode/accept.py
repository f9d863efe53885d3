"""Which representation a caller wants: the `Accept` header against what is offered (RFC 9110, section 12.5.1); pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from controller_manager.api.errors import NotAcceptable
from controller_manager.api.platform import GROUP_DOMAIN

JSON, YAML = "application/json", "application/yaml"
TABLE, PARTIAL = "Table", "PartialObjectMetadata"

_META = f"meta.{GROUP_DOMAIN}"
_OFFERED = (JSON, YAML)
_VIEWS = {"": "", TABLE: TABLE, PARTIAL: PARTIAL, f"{PARTIAL}List": PARTIAL}


@dataclass(frozen=True, slots=True)
class Form:
    """A media type, and what stands for the object: itself (empty), a `Table`, or only its metadata."""

    media: str = JSON
    view: str = ""


@lru_cache(maxsize=512)
def choose(accept: str, offered: tuple[str, ...] = _OFFERED) -> Form:
    """The form a caller likes best of those offered; anything when it does not say. Raises `NotAcceptable`."""
    if not accept.strip():
        return Form(offered[0])
    for media, parameters in preferred(accept):
        form = _form(media, parameters, offered)
        if form is not None:
            return form
    known = ", ".join(offered)
    raise NotAcceptable(f"only the following media types are accepted: {known}")


def preferred(accept: str) -> list[tuple[str, Mapping[str, str]]]:
    """Media ranges with their parameters, the dearest first: by weight, then the precise before the wild."""
    weighed = [(_weight(parameters), media, parameters) for media, parameters in _ranges(accept)]
    weighed.sort(key=lambda range_: (-range_[0], range_[1].count("*")))
    return [(media, parameters) for weight, media, parameters in weighed if weight > 0]


def _ranges(accept: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for part in accept.split(","):
        media, *pairs = part.split(";")
        parameters = {}
        for pair in pairs:
            name, _, value = pair.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        yield media.strip().lower(), parameters


def _weight(parameters: Mapping[str, str]) -> float:
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0


def _form(media: str, parameters: Mapping[str, str], offered: tuple[str, ...]) -> Form | None:
    view = _VIEWS.get(parameters.get("as", ""))
    if view is None or (view and (parameters.get("g"), parameters.get("v")) != (_META, "v1")):
        return None
    if media in ("*/*", "application/*"):
        return Form(offered[0], view)
    return Form(media, view) if media in offered else None
