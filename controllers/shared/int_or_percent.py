"""Numbers of pods that may be given as percentages (`IntOrString` of the API); pure."""

import re

_PERCENTAGE = re.compile(r"([0-9]{1,9})%", re.ASCII)


def part_of(whole: int, part: int | str | None, *, round_up: bool) -> int:
    """Return a number, or a percentage of `whole`. The result is 0 for None and for invalid text."""
    if part is None or isinstance(part, int):
        return part or 0
    found = _PERCENTAGE.fullmatch(part)
    if found is None:
        return 0
    return (whole * int(found[1]) + (99 if round_up else 0)) // 100
