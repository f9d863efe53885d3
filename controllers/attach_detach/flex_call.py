"""Calls of FlexVolume drivers: programs that take a command and arguments and print a JSON response.

command         arguments                result
init            -                        `capabilities`: whether volumes are attached (`attach`)
getvolumename   options                  not used: volumes have the names of the cluster
attach          options, node            `device`
detach          name of volume, node     -
isattached      options, node            `attached`

Every response has a `status`, and a `message` unless it is Success. The other commands are for nodes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from controller_manager.common.base.programs import ProgramResult, TooMuchOutputError, run_program

from .attachments import TIMEOUT

_LONGEST = 1 << 16
"""Maximum bytes of a driver's response."""
_MOST_MESSAGE = 512
"""Maximum characters of its message in events."""


class DriverError(Exception):
    """A driver failed; the message says why."""


class NotSupportedError(DriverError):
    """A driver does not support a command."""


class Capabilities(msgspec.Struct, frozen=True):
    """The capabilities of a driver. Missing ones are true."""

    attach: bool = True


class Answer(msgspec.Struct, frozen=True):
    """The response of a driver, as far as it is used here."""

    status: str = ""
    message: str = ""
    device: str = ""
    attached: bool = False
    capabilities: Capabilities = Capabilities()


async def call(program: str, command: str, *words: str) -> Answer:
    """Call a driver. Raises DriverError, whose text contains no arguments because they may be confidential."""
    try:
        ended = await run_program((program, command, *words), seconds=TIMEOUT, longest=_LONGEST)
    except OSError as error:
        raise DriverError(f"{program} cannot be started: {error.strerror}") from None
    except TimeoutError:
        raise DriverError(f"{command}: the driver did not end within {TIMEOUT:g} seconds") from None
    except TooMuchOutputError:
        raise DriverError(f"{command}: the driver answered more than {_LONGEST} bytes") from None
    return judge(command, ended)


def judge(command: str, ended: ProgramResult) -> Answer:
    """Return the response to a command that has ended. Raises DriverError."""
    try:
        answer = msgspec.convert(_as_go_reads(orjson.loads(ended.output)), Answer)
    except (orjson.JSONDecodeError, msgspec.ValidationError):
        raise DriverError(f"{command}: invalid output of the driver (exit status {ended.status})") from None
    if answer.status == "Not supported":
        raise NotSupportedError(f"{command}: the driver does not support it")
    if answer.status != "Success":
        raise DriverError(
            f"{command}: the driver answers {answer.status or 'nothing'}: {answer.message[:_MOST_MESSAGE]}"
        )
    if ended.status:
        raise DriverError(f"{command}: the driver reports success and ends with exit status {ended.status}")
    return answer


def _as_go_reads(tree: Any) -> Any:
    """Return JSON with lower-case names and without nulls, as Go's decoder treats them."""
    if not isinstance(tree, Mapping):
        return tree
    return {name.lower(): _as_go_reads(value) for name, value in tree.items() if value is not None}
