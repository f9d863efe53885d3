"""Named text formats such as `format.dns1123Label()`, with the error messages of Kubernetes 1.36."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, ClassVar

from controller_manager.common.cel.library import (
    REGEX_LENGTH,
    STRING_TRAVERSAL,
    CallEstimate,
    Function,
    Library,
    Overload,
)
from controller_manager.common.cel.library.costs import Arguments, Operands, match_cost, nominal, nominal_estimate
from controller_manager.common.cel.library.url import problem
from controller_manager.common.cel.types import STRING, Kind, ListType, OptionalType, Type
from controller_manager.common.cel.values import NONE, Opaque, Optional, size_of

_LABEL_LIMIT, _SUBDOMAIN_LIMIT = 63, 253
_LONGEST_PATTERN = 128  # for static estimates
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OLD_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"
_BASE64 = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")


def _rule(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_RULE = _rule(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    _LABEL, "my-name", "123-abc",
)  # fmt: skip
_OLD_LABEL_RULE = _rule(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    _OLD_LABEL, "my-name", "abc-123",
)  # fmt: skip
_SUBDOMAIN_RULE = _rule(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character",
    _SUBDOMAIN, "example.com",
)  # fmt: skip
_KEY_RULE = _rule(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _KEY, "MyName", "my.name", "123-abc",
)  # fmt: skip
_VALUE_RULE = _rule(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character",
    f"({_KEY})?", "MyValue", "my_value", "12345",
)  # fmt: skip


def _too_long(text: str, limit: int, unit: str) -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode("utf-8", "surrogatepass")) > limit else []


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text, re.ASCII) is not None


def label_problems(text: str) -> list[str]:
    """Return the errors of a DNS label (RFC 1123)."""
    problems = _too_long(text, _LABEL_LIMIT, "characters")
    if not _fits(_LABEL, text):
        problems.append("must not contain dots" if _fits(_SUBDOMAIN, text) else _LABEL_RULE)
    return problems


def subdomain_problems(text: str, unit: str = "characters") -> list[str]:
    """Return the errors of a DNS subdomain (RFC 1123)."""
    problems = _too_long(text, _SUBDOMAIN_LIMIT, unit)
    return problems if _fits(_SUBDOMAIN, text) else [*problems, _SUBDOMAIN_RULE]


def _old_label_problems(text: str) -> list[str]:
    problems = _too_long(text, _LABEL_LIMIT, "characters")
    return problems if _fits(_OLD_LABEL, text) else [*problems, _OLD_LABEL_RULE]


def _key_problems(text: str) -> list[str]:
    if text.count("/") > 1:
        return [
            f"a valid label key {_KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    prefix, slash, name = text.rpartition("/")
    problems = []
    if slash:
        wrong = subdomain_problems(prefix, "bytes") if prefix else ["must be non-empty"]
        problems += [f"prefix part {one}" for one in wrong]
    length = _too_long(name, _LABEL_LIMIT, "bytes") if name else ["must be non-empty"]
    problems += [f"name part {one}" for one in length]
    return problems if _fits(_KEY, name) else [*problems, f"name part {_KEY_RULE}"]


def _value_problems(text: str) -> list[str]:
    problems = _too_long(text, _LABEL_LIMIT, "bytes")
    return problems if _fits(f"({_KEY})?", text) else [*problems, _VALUE_RULE]


def _as_prefix(problems: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the check of a name prefix: it may end in a dash, since a suffix follows."""
    return lambda text: problems(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _uri_problems(text: str) -> list[str]:
    wrong = problem(text)
    return [wrong] if wrong else []


def _is_date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    try:
        date(year or 4, month, day)  # year 0 is a leap year, which Go supports and Python does not
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]):
        return False
    found = re.fullmatch(_TIME[1:-1], parts[1])
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def _message_unless(holds: Callable[[str], bool], message: str) -> Callable[[str], list[str]]:
    return lambda text: [] if holds(text) else [message]


def _is_uuid(text: str) -> bool:
    return re.fullmatch(_UUID.replace("^", "").replace("$", ""), text, re.ASCII) is not None


def _is_base64(text: str) -> bool:
    return _BASE64.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class NamedFormat(Opaque):
    """A format: its name, its check, and the length of its pattern for costs."""

    type: ClassVar[Type] = Type(Kind.STRUCT, "kubernetes.NamedFormat")

    name: str
    problems: Callable[[str], list[str]] = field(compare=False)
    pattern_length: int = field(compare=False)

    def __str__(self) -> str:
        """Return the name."""
        return self.name


FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", label_problems, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", subdomain_problems, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _old_label_problems, 30),
    "qualifiedName": NamedFormat("QualifiedName", _key_problems, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _as_prefix(label_problems), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _as_prefix(subdomain_problems), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _as_prefix(_old_label_problems), 30),
    "labelValue": NamedFormat("LabelValue", _value_problems, 40),
    "uri": NamedFormat("URI", _uri_problems, 1103),
    "uuid": NamedFormat("uuid", _message_unless(_is_uuid, "does not match the UUID format"), len(_UUID)),
    "byte": NamedFormat("byte", _message_unless(_is_base64, "invalid base64"), 84),
    "date": NamedFormat("date", _message_unless(_is_date, "invalid date"), len(_TIME)),
    "datetime": NamedFormat("datetime", _message_unless(_is_datetime, "invalid datetime"), len(_TIME)),
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(format_: NamedFormat, text: str) -> Optional:
    problems = format_.problems(text)
    return Optional(problems) if problems else NONE


def _validate_cost(arguments: Arguments, result: Any) -> int:
    format_, text = arguments
    return match_cost(size_of(text), format_.pattern_length) if isinstance(format_, NamedFormat) else 1


def _validate_estimate(operands: Operands) -> CallEstimate:
    return CallEstimate(operands[1].size.scaled(STRING_TRAVERSAL).scaled(_LONGEST_PATTERN * REGEX_LENGTH))


_FORMAT = NamedFormat.type


def _constant(name: str, value: NamedFormat) -> Function:
    return Function(f"format.{name}", (Overload(f"format.{name}", (), _FORMAT, lambda: value),))


NAMED_FORMATS = Library(
    "kubernetes.format",
    (
        Function(
            "validate",
            (
                Overload(
                    "format-validate",
                    (_FORMAT, STRING),
                    OptionalType(ListType(STRING)),
                    _validate,
                    receiver=True,
                    estimate=_validate_estimate,
                ),
            ),
            _validate_cost,
        ),
        Function(
            "format.named",
            (Overload("format-named", (STRING,), OptionalType(_FORMAT), _named, estimate=nominal_estimate),),
            nominal,
        ),
        *(_constant(name, value) for name, value in FORMATS.items()),
    ),
)
