"""The FlexVolume drivers in a directory, which may be added, replaced and removed at any time.

A driver `vendor/name` is the program `vendor~name/name`. At each scan:

program                                        action
new or replaced                                initialize it
initialization failed, and backoff is over      initialize it again
unchanged, or being initialized                nothing
removed                                        nothing; operations that need it fail

The capabilities of an initialized driver are kept until a replacement reports others. Unsupported commands are called
only once.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from controller_manager.common.base.clock import monotonic, sleep_for_housekeeping
from controller_manager.common.base.log import Logger
from controller_manager.common.base.tasks import Tasks

from ..shared.volume_specs import CSI, FC, ISCSI, VolumeSpec
from .flex_call import Answer, DriverError, NotSupportedError, call
from .state import FIRST_PAUSE, LONGEST_PAUSE, OperationResult, Verb

PERIOD = 10.0
"""Seconds between two scans of the directory."""
AT_ONCE = 8
"""Maximum concurrent calls of one driver."""


class DriverProgram(NamedTuple):
    """A program, and a stamp that changes when it is replaced."""

    path: str
    stamp: tuple[int, ...]


class Driver(msgspec.Struct):
    """A driver. `attaches` is None until it was initialized once.

    `again` is the time of the next attempt. It is None during an attempt and after success.
    """

    program: DriverProgram
    attaches: bool | None = None
    again: float | None = 0.0
    failures: int = 0
    unsupported: set[str] = set()
    turns: asyncio.Semaphore = msgspec.field(default_factory=partial(asyncio.Semaphore, AT_ONCE))

    def failed(self, now: float) -> None:
        """Record that the initialization failed."""
        self.again = now + min(FIRST_PAUSE * 2.0 ** min(self.failures, 60), LONGEST_PAUSE)
        self.failures += 1


def find_programs(folder: str) -> dict[str, DriverProgram]:
    """Return the programs in a directory by driver name. Raises OSError."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name.replace("~", "/")
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False) or name in (CSI, FC, ISCSI):
                continue
            path = Path(entry.path, name.rpartition("/")[2])
            with suppress(OSError):
                seen = path.stat()
                found[name] = DriverProgram(str(path), (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
    return found


def to_initialize(drivers: dict[str, Driver], found: Mapping[str, DriverProgram], now: float) -> Iterator[str]:
    """Record the programs found. Yield the names of those to initialize now."""
    for name, program in found.items():
        driver = drivers.get(name)
        if driver is None:
            driver = drivers[name] = Driver(program)
        elif driver.program != program:
            driver.program, driver.again, driver.failures = program, 0.0, 0
        if driver.again is not None and driver.again <= now:
            driver.again = None
            yield name


class FlexDrivers:
    """Calls the drivers in a directory that is scanned periodically."""

    def __init__(self, folder: str, log: Logger) -> None:
        self._folder = folder
        self._log = log
        self._drivers: dict[str, Driver] = {}
        self._tasks = Tasks()
        self._problem = ""

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Scan the directory periodically until cancelled. `changed` is called with the name of each
        initialized driver.
        """
        async with self._tasks:
            while True:
                for name in to_initialize(self._drivers, self._look(), monotonic()):
                    self._tasks.start(self._initialize(name, changed), name=f"FlexVolume driver {name}")
                await sleep_for_housekeeping(PERIOD)

    def _look(self) -> Mapping[str, DriverProgram]:
        problem, found = "", {}
        try:
            found = find_programs(self._folder)
        except FileNotFoundError:
            pass  # it may come
        except OSError as error:
            problem = error.strerror or str(error)
        if problem and problem != self._problem:
            self._log.warning("the folder of FlexVolume drivers can't be read", folder=self._folder, problem=problem)
        self._problem = problem
        return found

    async def _initialize(self, name: str, changed: Callable[[str], None]) -> None:
        driver = self._drivers[name]
        program = driver.program
        try:
            answer = await call(program.path, "init")
        except DriverError as error:
            if driver.program == program:
                driver.failed(monotonic())
                self._log.warning("a FlexVolume driver did not initialize", driver=name, problem=str(error))
            return
        if driver.program != program:
            return  # the one in its place is asked, too
        driver.attaches, driver.failures = answer.capabilities.attach, 0
        driver.unsupported.clear()
        self._log.info("a FlexVolume driver is ready", driver=name, attaches=driver.attaches)
        changed(name)

    @property
    def names(self) -> list[str]:
        """Return the names of the initialized drivers."""
        return [name for name, driver in self._drivers.items() if driver.attaches is not None]

    def attaches(self, name: str) -> bool:
        """Return whether volumes of a driver have to be attached."""
        return name in self._drivers and self._drivers[name].attaches is True

    def begin(self, verb: Verb, spec: VolumeSpec, node: str, ended: Callable[[OperationResult], None]) -> None:
        """Start attaching or detaching a volume. `ended` is called once."""
        self._tasks.start(self._attempt(verb, spec, node, ended), name=f"{verb} {spec.name} {node}")

    async def is_attached(self, spec: VolumeSpec, node: str) -> bool:
        """Return whether a volume is still attached to a node, as far as the driver can report. Raises DriverError."""
        if not spec.options:
            return True
        with suppress(NotSupportedError):
            return (await self._call(spec, "isattached", spec.options, node)).attached
        return True

    async def _attempt(self, verb: Verb, spec: VolumeSpec, node: str, ended: Callable[[OperationResult], None]) -> None:
        try:
            if spec.options:
                with suppress(NotSupportedError):
                    await self._call(spec, "getvolumename", spec.options)
            device = await self._attach(spec, node) if verb is Verb.ATTACH else await self._detach(spec, node)
            ended(OperationResult(done=True, device=device))
        except DriverError as error:
            ended(OperationResult(problem=str(error)))

    async def _attach(self, spec: VolumeSpec, node: str) -> str:
        with suppress(NotSupportedError):
            return (await self._call(spec, "attach", spec.options, node)).device
        return ""

    async def _detach(self, spec: VolumeSpec, node: str) -> str:
        with suppress(NotSupportedError):
            await self._call(spec, "detach", spec.name.removeprefix(f"{spec.plugin}/"), node)
        return ""

    async def _call(self, spec: VolumeSpec, command: str, *words: str) -> Answer:
        driver = self._drivers[spec.plugin]
        if command in driver.unsupported:
            raise NotSupportedError
        try:
            async with driver.turns:
                return await call(driver.program.path, command, *words)
        except NotSupportedError:
            driver.unsupported.add(command)
            raise
