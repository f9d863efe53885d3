"""Flags as fields: the base class of flag groups, the function that declares a flag, and the flags of every
process.
"""

import json
import platform
import re
import sys
from functools import cache
from importlib.metadata import version as released
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from controller_manager.common.api.platform import API_VERSION
from controller_manager.common.options.types import FlagType, flag_type, parse_bool


class _Declared(msgspec.Struct, frozen=True):
    """The arguments of `flag()` except type and default."""

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
    """A read-only group of flags. A rule for several fields is a pydantic validator that raises ValueError."""

    # Validators are built on first use, which help and version do not need.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)

    title: ClassVar[str] = ""
    """The heading in `--help`; by default derived from the class name."""


Options.model_rebuild()  # so that `help(Options)` shows its fields


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
    The flag has the name of the field, with dashes, unless `name` is given; `aliases` are accepted too.
    `minimum` and `maximum` are inclusive. `inert` is the reason why the flag is accepted without effect.
    """
    field: FieldInfo = Field(default, ge=minimum, le=maximum)
    declared = _Declared(help, name, aliases, short, minimum, maximum, choices, inert, metavar)
    field.metadata.append(declared)
    return field


class Flag(msgspec.Struct, frozen=True):
    """A declared flag, as used by parsing and help; names have no leading dashes."""

    group: type[Options]
    field: str
    name: str
    type: FlagType
    default: Any
    declared: _Declared

    def check(self, value: Any) -> None:
        """Raise ValueError if the value is outside of the limits."""
        low, high, choices = self.declared.minimum, self.declared.maximum, self.declared.choices
        if low is not None and value < low:
            raise ValueError(f"must be at least {self.type.format(low)}")
        if high is not None and value > high:
            raise ValueError(f"must be at most {self.type.format(high)}")
        if choices and value not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")


@cache
def flags_of(group: type[Options]) -> tuple[Flag, ...]:
    """Return the flags of a group in order of declaration; raises TypeError for a field not made by `flag()`."""
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
    """Return the heading of a group: "Leader election" for "LeaderElectionOptions"."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", group.__name__.removesuffix("Options"))
    return group.title or " ".join(words).capitalize() or group.__name__


_DISTRIBUTION = "cluster-controller-manager"
# https://semver.org: three numbers, optional pre-release, optional build metadata.
_NUMBER, _WORDS = r"(?:0|[1-9]\d*)", r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SEMANTIC = re.compile(rf"v({_NUMBER}\.{_NUMBER})\.{_NUMBER}(?:-{_WORDS})?(?:\+{_WORDS})?", re.ASCII)


def _parse_version(text: str) -> str:
    if text == "raw":
        return text
    if not text.startswith("v"):
        return "true" if parse_bool(text) else "false"
    found = _SEMANTIC.fullmatch(text)
    if found is None or found[1] != API_VERSION:
        raise ValueError(f"a version to report is of the form v{API_VERSION}.0 or v{API_VERSION}.4-rebuilt+2")
    return text


VersionText = Annotated[str, FlagType("version[=true]", _parse_version, str, bare="true")]


@cache
def release_version() -> str:
    """Return the API version with our release as build metadata."""
    return f"v{API_VERSION}.0+{_DISTRIBUTION}.{released(_DISTRIBUTION)}"


class GeneralOptions(Options):
    """The flags of every process."""

    help: bool = flag(False, "print this help and exit", short="h")
    version: VersionText = flag(
        "false",
        f"print the version and exit; --version=raw prints detailed version information; --version=v{API_VERSION}.Z... "
        "sets the version that is reported",
    )

    def reported(self) -> str:
        """Return the reported version: the one set by the user, or that of our release."""
        return self.version if self.version.startswith("v") else release_version()

    def printed(self, program: str) -> str:
        """Return the output of `--version`, empty if it was not given."""
        if self.version == "true":
            return f"{program} {self.reported()}\n"
        if self.version != "raw":
            return ""
        major, _, minor = API_VERSION.partition(".")
        runs_on = {"python": platform.python_version(), "platform": f"{sys.platform}/{platform.machine()}"}
        return json.dumps({"major": major, "minor": minor, "gitVersion": self.reported(), **runs_on}) + "\n"
