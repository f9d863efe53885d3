"""What a request for a profile asks for, checked; and the arguments of the process without secrets; pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from controller_manager.api.errors import BadRequest
from controller_manager.api.wire import Request
from controller_manager.base.log import MASKED, without_secrets

LONGEST = 120  # seconds

# A flag that is named like a secret, and values that are none: a truth value, a count, a time or the next flag.
_SECRET_NAME = re.compile(r"--?[\w-]*(token|password|passwd|secret|credential|api-?key)(?![\w-]*-(file|dir))[\w-]*")
_HARMLESS = re.compile(r"[\d.]+[a-zµ]*(\d+[a-z]+)*|true|false|-.*|")


@dataclass(frozen=True, slots=True)
class Ask:
    """The query of a request; `seconds` is 0 for what there is now, and `debug` 0 asks for a file for pprof."""

    seconds: int = 0
    debug: int = 0
    collect: bool = False


def parse_ask(request: Request, seconds: int = 0) -> Ask:
    """What a request asks for, for so many seconds unless it says how many.

    Raises BadRequest with one sentence; parameters nobody knows are ignored, as elsewhere.
    """
    query = dict(request.query)

    def whole(name: str, low: int, high: int, default: int = 0) -> int:
        text = query.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not low <= int(text) <= high:
            raise BadRequest(f"{name} must be a whole number from {low} to {high}")
        return int(text)

    return Ask(whole("seconds", 1, LONGEST, seconds), whole("debug", 0, 2), bool(whole("gc", 0, 1)))


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments as they may be shown: without credentials in addresses, and without the value of a flag that is named
    like a secret, although it should be in a file.
    """
    shown, is_value = [], False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        is_secret = _SECRET_NAME.fullmatch(name.replace("_", "-")) is not None
        if is_value and not _HARMLESS.fullmatch(argument):
            argument = MASKED
        elif is_secret and equals and not _HARMLESS.fullmatch(value):
            argument = f"{name}={MASKED}"
        shown.append(without_secrets(argument))
        is_value = is_secret and not equals
    return shown
