"""Configuration files of the server (`apiserver.config.k8s.io`, `audit.k8s.io`, …): read strictly, and followed.

What the fields mean, and which values they may have, is judged by those who use them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from controller_manager.api.errors import Cause
from controller_manager.api.model import Model
from controller_manager.base.plain_yaml import NotPlain, read_yaml
from controller_manager.options.types import parse_duration

T = TypeVar("T")
_MOST_BYTES = 4 << 20
_SHOWN = 10  # problems in one message


class ConfigFileError(ValueError):
    """A file cannot be used; the message names it, and the field with each problem."""


class Seconds(float):
    """A duration, written in a file as Go does (`5m0s`)."""


class ConfigModel(Model, forbid_unknown_fields=True):
    """A value in a file. Fields that it does not have are errors."""


class ConfigDocument(ConfigModel):
    """A whole document; its type is known by `apiVersion` and `kind`."""

    api_version: str
    kind: str


def read_config(path: Path, kind: str, types: Mapping[str, type[T]]) -> T:
    """Return the document in a file: of `kind`, as the type for its API version. Raises `ConfigFileError`."""
    return parse_config(_bytes(path), path, kind, types)


def parse_config(data: bytes, path: Path, kind: str, types: Mapping[str, type[T]]) -> T:
    """Return the document in the bytes of a file, YAML or JSON; `null` means that a field is absent. Raises
    `ConfigFileError`.
    """
    if len(data) > _MOST_BYTES:
        raise ConfigFileError(f"{path} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        tree = _without_nulls(read_yaml(data, unique_keys=True))
    except NotPlain as error:
        raise ConfigFileError(f"{path} is no YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigFileError(f"{path} holds no {kind}")
    if tree.get("kind") != kind:
        raise ConfigFileError(f"{path}: kind: must be {kind}")
    version = tree.get("apiVersion")
    if not isinstance(version, str) or version not in types:
        raise ConfigFileError(f"{path}: apiVersion: must be one of {', '.join(types)}")
    try:
        return msgspec.convert(tree, types[version], dec_hook=_converted)
    except msgspec.ValidationError as error:
        raise ConfigFileError(f"{path}: {_located(str(error))}") from None


def refuse_causes(path: Path, causes: Sequence[Cause]) -> None:
    """Raise `ConfigFileError` with all of what is wrong with a document; return if that is nothing."""
    if not causes:
        return
    told = [f"{cause.field}: {cause.message}" for cause in causes[:_SHOWN]]
    more = [f"and {len(causes) - _SHOWN} more"] if len(causes) > _SHOWN else []
    raise ConfigFileError(f"{path}: {'; '.join([*told, *more])}")


class FileWatcher:
    """Tells of each change of a file's bytes, as `apply` gets them; that of a file which cannot be read goes to
    `failed`, once for each reason.
    """

    def __init__(
        self,
        path: Path,
        seen: bytes,
        apply: Callable[[bytes], Awaitable[None]],
        failed: Callable[[ConfigFileError], None],
        interval: float = 1.0,
    ) -> None:
        self._path = path
        self._seen = seen
        self._trouble = ""
        self._apply = apply
        self._failed = failed
        self._interval = interval

    async def run(self) -> None:
        """Look every `interval` seconds, until cancelled. `apply` raises `ConfigFileError` for what it cannot use."""
        while True:
            await asyncio.sleep(self._interval)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        try:
            data = _bytes(self._path)
        except ConfigFileError as error:
            if self._trouble != str(error):
                self._trouble = str(error)
                self._failed(error)
            return
        self._trouble = ""
        if data == self._seen:
            return
        self._seen = data
        try:
            await self._apply(data)
        except ConfigFileError as error:
            self._failed(error)


def _without_nulls(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    return [_without_nulls(item) for item in tree] if isinstance(tree, list) else tree


def _converted(wanted: type, value: Any) -> Any:
    if wanted is not Seconds:
        raise NotImplementedError
    if not isinstance(value, str):
        raise ValueError("a duration is a text like 5m0s")
    return Seconds(parse_duration(value))


def _located(message: str) -> str:
    """Return what msgspec says of a value (`… - at `$.jwt[0].issuer``) as field and problem."""
    problem, _, path = message.partition(" - at `$")
    field = path.rstrip("`").removeprefix(".")
    return f"{field}: {problem}" if field else problem


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigFileError(f"{path} can't be read: {error.strerror}") from None
