"""One flag is one field: the base class of every group of flags, and the function that declares a field."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from controller_manager.options.types import FlagType, flag_type


@dataclass(frozen=True, slots=True)
class _Declared:
    """The arguments of `flag()` beyond type and default."""

    help: str
    name: str | None
    aliases: tuple[str, ...]
    short: str | None
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    inert: str | None
    metavar: str | None


class Options(BaseModel):
    """A read-only group of flags; a cross-field rule is a pydantic validator that raises ValueError with a sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    title: ClassVar[str] = ""
    """The heading in `--help`; by default the words of the class name."""


def flag(
    default: Any,
    help: str,  # noqa: A002 - the word every reader expects
    *,
    name: str | None = None,
    aliases: tuple[str, ...] = (),
    short: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    inert: str | None = None,
    metavar: str | None = None,
) -> Any:
    """Declare a flag as the value of a field of an `Options` class.

    `default` is a value of the field's type (a duration may be text); None means not set, for a field `T | None`.
    The flag is named like the field, with dashes, unless `name` says otherwise; `aliases` are accepted too.
    `minimum` and `maximum` are inclusive. `inert` says why the flag is accepted and changes nothing.
    """
    field: FieldInfo = Field(default, ge=minimum, le=maximum)
    declared = _Declared(help, name, aliases, short, minimum, maximum, choices, inert, metavar)
    field.metadata.append(declared)
    return field


@dataclass(frozen=True, slots=True)
class Flag:
    """A declared flag, as parsing and help see it; names are without dashes in front."""

    group: type[Options]
    field: str
    name: str
    type: FlagType
    default: Any
    declared: _Declared

    def check(self, value: Any) -> None:
        """Raise ValueError if the value breaks a bound."""
        low, high, choices = self.declared.minimum, self.declared.maximum, self.declared.choices
        if low is not None and value < low:
            raise ValueError(f"must be at least {self.type.format(low)}")
        if high is not None and value > high:
            raise ValueError(f"must be at most {self.type.format(high)}")
        if choices and value not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")


@cache
def flags_of(group: type[Options]) -> tuple[Flag, ...]:
    """The flags of a group in order of declaration; raises TypeError for a field not made by `flag()`."""
    found = []
    for field_name, field in group.model_fields.items():
        declared = next((one for one in field.metadata if isinstance(one, _Declared)), None)
        if declared is None:
            raise TypeError(f"{group.__name__}.{field_name} is not declared with flag()")
        name = declared.name or field_name.replace("_", "-")
        kind = flag_type(field.annotation, field.metadata)
        default = field.default
        if isinstance(default, str) and kind.label != "string":
            default = kind.parse(default)
        found.append(Flag(group, field_name, name, kind, default, declared))
    return tuple(found)


def title_of(group: type[Options]) -> str:
    """The heading of a group: "LeaderElectionOptions" reads "Leader election"."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", group.__name__.removesuffix("Options"))
    return group.title or " ".join(words).capitalize() or group.__name__
