"""What a request for a profile asks for, checked; and the arguments of the process without secrets; pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from controller_manager.api.errors import BadRequest
from controller_manager.api.wire import Request

LONGEST = 120  # seconds

# What users of flags may put into an argument although it should be in a file: credentials in an address, and the value
# of a flag that is named like a secret and is neither a path, a truth value, a count nor a time.
_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]*@")
_SECRET_NAME = re.compile(r"--?[\w-]*(token|password|passwd|secret|credential|api-?key)(?![\w-]*-(file|dir))[\w-]*")
_HARMLESS = re.compile(r"[\d.]+[a-zµ]*(\d+[a-z]+)*|true|false|-.*|")
_HIDDEN = "***"


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
    seconds = _whole(query, "seconds", 1, LONGEST) if "seconds" in query else seconds
    collect = _whole(query, "gc", 0, 1) if "gc" in query else 0
    debug = _whole(query, "debug", 0, 2) if "debug" in query else 0
    return Ask(seconds, debug, bool(collect))


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Arguments as they may be shown."""
    shown, hide = [], False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        secret = _SECRET_NAME.fullmatch(name.replace("_", "-")) is not None
        if hide and not _HARMLESS.fullmatch(argument):
            argument = _HIDDEN
        elif secret and equals and not _HARMLESS.fullmatch(value):
            argument = f"{name}={_HIDDEN}"
        shown.append(_CREDENTIALS.sub(f"{_HIDDEN}@", argument))
        hide = secret and not equals
    return shown


def _whole(query: dict[str, str], name: str, low: int, high: int) -> int:
    text = query[name]
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or not low <= int(text) <= high:
        raise BadRequest(f"{name} must be a whole number from {low} to {high}")
    return int(text)
