"""Maintenance commands: snapshot, restore, export, import and check."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from pydantic import model_validator

from apiserver_stub.common.flags import DATABASE, ETCD
from apiserver_stub.common.flags.etcd import EtcdServersOptions
from apiserver_stub.storage.etcd import EtcdServers
from apiserver_stub.storage.exports.etcd import EtcdSource, EtcdTarget
from apiserver_stub.storage.exports.sqlite import SqliteSource, SqliteTarget
from apiserver_stub.storage.exports.transfer import ImportTarget, Moved, Source, export_rows, import_rows
from apiserver_stub.storage.integrity import JUMP
from apiserver_stub.storage.interface import Unusable
from apiserver_stub.storage.snapshot import Content, check, restore, take
from controller_manager.common.base.clock import monotonic
from controller_manager.common.options.command_line import command_line
from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.parse import FlagSet, Parsed
from controller_manager.common.transport.transport import ConfigError

_EVERY = 1.0  # seconds between two progress messages


class SnapshotOptions(Options):
    """The store to copy and the snapshot file."""

    title = "Snapshot"

    data_dir: str = flag("apiserver-data", "Data folder of the server, which may run meanwhile.")
    file: str = flag("", "File to make; it must not be there yet.")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.file:
            raise ValueError("--file must name the file of the snapshot")
        return self


class RestoreOptions(Options):
    """The snapshot and the path of the restored store."""

    title = "Restore"

    file: str = flag("", "The snapshot.")
    data_dir: str = flag("apiserver-data", "Data folder of the server to be; there must be no store in it yet.")
    revision_jump: int = flag(
        JUMP,
        "By how much revisions jump, more than were given out since the snapshot, so that none is given out again.",
        minimum=1,
        maximum=1 << 48,
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.file:
            raise ValueError("--file must name the file of the snapshot")
        return self


class ExportOptions(Options):
    """The store to export and the output file."""

    title = "Export"

    storage_backend: str = flag("sqlite", "The kind of the store that is read.", choices=("sqlite", *ETCD))
    data_dir: str = flag("apiserver-data", "Data folder of the server, which may run meanwhile.")
    file: str = flag("", "File to make; it must not be there yet.")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.file:
            raise ValueError("--file must name the file of the export")
        return self


class ImportOptions(Options):
    """The export file and the store to create."""

    title = "Import"

    file: str = flag("", "The export.")
    storage_backend: str = flag("sqlite", "The kind of the store that is filled.", choices=("sqlite", *ETCD))
    data_dir: str = flag("apiserver-data", "Data folder of the server to be; there must be no store in it yet.")
    revision_jump: int = flag(
        0,
        "By how much revisions jump behind that of the export, more than were given out since by a server that went on "
        "writing to the store it is of.",
        minimum=0,
        maximum=1 << 48,
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.file:
            raise ValueError("--file must name the file of the export")
        return self


class CheckOptions(Options):
    """The store or snapshot to check."""

    title = "Check"

    data_dir: str = flag("apiserver-data", "Data folder of a server, which may run meanwhile.")
    file: str = flag("", "A snapshot to check instead.")


def run(program: str, command: str, summary: str, argv: Sequence[str]) -> None:
    """Run a command; print one sentence, and exit with status 1 on failure."""
    groups, work = _COMMANDS[command]
    options = command_line(f"{program} {command}", summary, FlagSet(*groups), argv)
    try:
        sys.stdout.write(f"{work(options, _Progress().report)}\n")
    except (Unusable, ConfigError, OSError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        sys.stderr.write(f"{program} {command}: {why}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        sys.stderr.write(f"{program} {command}: interrupted\n")
        raise SystemExit(130) from None


class _Progress:
    """Prints progress about every second."""

    def __init__(self) -> None:
        self._next = monotonic() + _EVERY

    def report(self, words: str) -> None:
        """Print a progress message if it is time."""
        if monotonic() >= self._next:
            self._next = monotonic() + _EVERY
            sys.stderr.write(f"{words}\n")
            sys.stderr.flush()


def _take(options: Parsed, report: Callable[[str], None]) -> str:
    chosen = options[SnapshotOptions]
    content = take(Path(chosen.data_dir) / DATABASE, Path(chosen.file), report)
    return f"{chosen.file}: {_described(content)}"


def _restore(options: Parsed, report: Callable[[str], None]) -> str:
    chosen = options[RestoreOptions]
    revision = restore(Path(chosen.file), Path(chosen.data_dir) / DATABASE, chosen.revision_jump, report)
    return f"{chosen.data_dir}: restored; revisions continue after {revision}"


def _check(options: Parsed, report: Callable[[str], None]) -> str:
    chosen = options[CheckOptions]
    path = Path(chosen.file) if chosen.file else Path(chosen.data_dir) / DATABASE
    content = check(path, report)
    if content.damaged:
        raise Unusable(f"{path} holds {len(content.damaged)} damaged objects: {', '.join(content.damaged[:20])}")
    return f"{path}: whole, {_described(content)}"


def _export(options: Parsed, report: Callable[[str], None]) -> str:
    chosen = options[ExportOptions]
    moved = asyncio.run(export_rows(_source(options), Path(chosen.file), report))
    summary = f"{moved.records} records up to revision {moved.revision}{_before(moved)}"
    return f"{chosen.file}: {summary}{_encrypted(moved)}"


def _import(options: Parsed, report: Callable[[str], None]) -> str:
    chosen = options[ImportOptions]
    moved = asyncio.run(import_rows(Path(chosen.file), _target(options), report))
    summary = f"{moved.records} records imported{_before(moved)}{_encrypted(moved)}"
    return f"{chosen.file}: {summary}; revisions continue after {moved.revision}"


def _source(options: Parsed) -> Source:
    chosen = options[ExportOptions]
    if chosen.storage_backend in ETCD:
        return EtcdSource(*_etcd(options))
    return SqliteSource(Path(chosen.data_dir) / DATABASE)


def _target(options: Parsed) -> ImportTarget:
    chosen = options[ImportOptions]
    if chosen.storage_backend in ETCD:
        return EtcdTarget(*_etcd(options), chosen.revision_jump)
    return SqliteTarget(Path(chosen.data_dir) / DATABASE, chosen.revision_jump)


def _etcd(options: Parsed) -> tuple[EtcdServers, str]:
    chosen = options[EtcdServersOptions]
    try:
        files = chosen.etcd_cafile, chosen.etcd_certfile, chosen.etcd_keyfile
        return EtcdServers(chosen.etcd_servers, *files), chosen.etcd_prefix
    except ValueError as error:
        raise Unusable(str(error)) from None


def _before(moved: Moved) -> str:
    return f", {moved.before} of them before it was interrupted" if moved.before else ""


def _encrypted(moved: Moved) -> str:
    if not moved.encrypted:
        return ""
    counted = ", ".join(f"{number} of {resource}" for resource, number in sorted(moved.encrypted.items()))
    return f", encrypted as they are kept, and of use with the same --encryption-provider-config only: {counted}"


def _described(content: Content) -> str:
    damaged = f", {len(content.damaged)} of them damaged" if content.damaged else ""
    kinds = f"{content.resources} kind{'s' if content.resources != 1 else ''}"
    return f"{content.records} records of {kinds}{damaged}, up to revision {content.revision}"


_Work = Callable[[Parsed, Callable[[str], None]], str]
_COMMANDS: Mapping[str, tuple[Sequence[type[Options]], _Work]] = MappingProxyType(
    {
        "snapshot": ((SnapshotOptions,), _take),
        "restore": ((RestoreOptions,), _restore),
        "export": ((ExportOptions, EtcdServersOptions), _export),
        "import": ((ImportOptions, EtcdServersOptions), _import),
        "check": ((CheckOptions,), _check),
    }
)
