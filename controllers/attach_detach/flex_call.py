"""Calls of FlexVolume drivers: a command and its words are those of a program, and its output is the answer, as JSON.

asked            words                         told
init             -                             `capabilities`: whether volumes are attached (`attach`)
getvolumename    options                       nothing that is used: volumes are called as in the cluster
attach           options, node                 `device`
detach           name of the volume, node      -
isattached       options, node                 `attached`
Every answer has a `status`, and a `message` where it is not Success. What else drivers can do is asked by nodes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from controller_manager.common.base.programs import ProgramResult, TooMuchOutputError, run_program

from .attachments import TIMEOUT

_LONGEST = 1 << 16
"""Bytes that a driver may answer."""
_TOLD = 512
"""Characters of its message that pods are told."""


class DriverError(Exception):
    """A driver did not do what it was asked for, and why."""


class NotSupportedError(DriverError):
    """A driver does not know a command."""


class Capabilities(msgspec.Struct, frozen=True):
    """What a driver can do; it can what it does not mention."""

    attach: bool = True


class Answer(msgspec.Struct, frozen=True):
    """What a driver said, as far as anybody here asks."""

    status: str = ""
    message: str = ""
    device: str = ""
    attached: bool = False
    capabilities: Capabilities = Capabilities()


async def call(program: str, command: str, *words: str) -> Answer:
    """Have a driver do something. Raises DriverError, whose text has none of the words: they may be confidential."""
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
    """Return the answer to a command that was done. Raises DriverError."""
    try:
        answer = msgspec.convert(_as_go_reads(orjson.loads(ended.output)), Answer)
    except (orjson.JSONDecodeError, msgspec.ValidationError):
        raise DriverError(f"{command}: the output of the driver is no answer (exit status {ended.status})") from None
    if answer.status == "Not supported":
        raise NotSupportedError(f"{command}: the driver does not support it")
    if answer.status != "Success":
        raise DriverError(f"{command}: the driver answers {answer.status or 'nothing'}: {answer.message[:_TOLD]}")
    if ended.status:
        raise DriverError(f"{command}: the driver reports success and ends with exit status {ended.status}")
    return answer


def _as_go_reads(tree: Any) -> Any:
    """Return JSON with names in lower case and without nulls: neither matters to Go."""
    if not isinstance(tree, Mapping):
        return tree
    return {name.lower(): _as_go_reads(value) for name, value in tree.items() if value is not None}
