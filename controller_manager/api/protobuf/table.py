"""The table of messages, written by `apiserver_stub/kinds/data/reduce.py` from public API descriptions.

`kinds` has the message of each kind by `version/kind` or `group/version/kind`, or by the kind alone where it is in
every version; `messages` of each message the fields by number, as `[name, type, label]`.

A type is `string`, `bool`, `int`, `double`, `bytes` (base64 in JSON), `raw` (bytes as they are) or another message.
A label is `list`, `map` (from strings), `pointer` (written only when it is there, so that its zero says something),
`required` (always written, and its zero is told in JSON) or nothing (always written; a scalar's zero is absence in
JSON); a field without a name is a message whose fields are the outer object's.
"""

from functools import cache
from importlib.resources import files

import msgspec


class Table(msgspec.Struct, frozen=True):
    """All that is known about messages."""

    kinds: dict[str, str]
    messages: dict[str, dict[str, list[str]]]

    def message_of(self, api_version: str, kind: str) -> str | None:
        """Return the message of objects of a type."""
        return self.kinds.get(f"{api_version}/{kind}") or self.kinds.get(kind)


@cache
def table() -> Table:
    """Read when somebody first asks: most commands never do."""
    return msgspec.json.decode(files(__package__).joinpath("messages.json").read_bytes(), type=Table)
