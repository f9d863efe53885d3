"""Validation of conditions of the common type (`metav1.Condition`)."""

import re
from typing import Any

from apiserver_stub.common.error_list import ErrorList, FieldPath
from apiserver_stub.kinds.rules.combine import (
    at_least,
    both,
    distinct_by,
    each,
    form,
    if_any,
    need,
    one_of,
    record,
    shorter,
)
from apiserver_stub.kinds.rules.formats import QUALIFIED

_REASON_FORM = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON = re.compile(_REASON_FORM)
_REASON_RULE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    f"'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON_FORM}')"
)


def _condition(condition: Any, at: FieldPath, errors: ErrorList) -> None:
    QUALIFIED(condition.get("type") or "", (at, "type"), errors)
    one_of("False", "True", "Unknown")(condition.get("status") or "", (at, "status"), errors)


CONDITIONS = both(
    each(record({
        "observedGeneration": at_least(0, "must be greater than or equal to zero"),
        "reason": both(if_any(form(lambda reason: "" if _REASON.fullmatch(reason) else _REASON_RULE)), shorter(1024)),
        "message": shorter(32 * 1024),
    }, _condition, need("lastTransitionTime", "reason"))),
    distinct_by("type"),
)  # fmt: skip
"""The rule of a list of conditions."""
