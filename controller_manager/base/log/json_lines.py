"""A line as one JSON object, with the keys other components of a cluster give it: ts, logger, caller, msg, v, err."""

import json
from typing import Any

from controller_manager.base.errors import words
from controller_manager.base.log.line import JSON_TYPES, Line

_INFO = "I"
_NAMES = {"W": "warning", "F": "critical"}


def as_json(line: Line) -> str:
    """The line, ending in a newline. `ts` is in milliseconds since the epoch; `v` is not said of errors, and
    `severity` of those lines only that `err` and `v` don't tell apart.
    """
    said: dict[str, Any] = {"ts": round(line.time * 1000, 3)}
    if line.logger:
        said["logger"] = line.logger
    said |= {"caller": f"{'/'.join(line.file.split('/')[-2:])}:{line.number}", "msg": line.message}
    if line.severity == _INFO:
        said["v"] = line.v
    elif line.severity in _NAMES:
        said["severity"] = _NAMES[line.severity]
    said.update((name, _value(value)) for name, value in line.fields.items())
    if line.error is not None:
        said["err"] = str(line.error)
    if line.trace:
        said["stacktrace"] = line.trace
    return json.dumps(said, default=words, skipkeys=True, separators=(",", ":")) + "\n"


def _value(value: Any) -> Any:
    return value if type(value) in JSON_TYPES else words(value)
