"""Validate a value by its schema, with the causes of kube-apiserver (go-openapi/validate).

This code checks everything and words the errors. `shapes.py` recognizes valid objects faster.
"""

from collections.abc import Iterator, Mapping
from math import inf, isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

from apiserver_stub.common.error_list import NOWHERE, ErrorList, FieldPath, go_number, shown
from apiserver_stub.kinds.structural.correlation import Correlation
from apiserver_stub.kinds.structural.formats import format_of
from apiserver_stub.kinds.structural.schema import INT_OR_STRING, TYPE_META
from controller_manager.common.base.regex import compile_regex

Raw = Mapping[str, Any]

_INT64 = range(-(2**63), 2**63)
_INT32 = range(-(2**31), 2**31)
_MAX_FLOAT32 = 3.4028234663852886e38
_JSON_INTEGERS = 2.0**53
_EPSILON = 1e-9
_NUMBER_FORMATS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"integer": ("int32", "int64"), "number": ("float", "double")}
)
_ROOT_META = TYPE_META - {"metadata"}
_NO_PROPERTIES: Mapping[str, Raw] = MappingProxyType({})


class Problem(NamedTuple):
    """An error of a value: type, path, shown value, message, and the limit or the allowed values. Errors of the whole
    object have the path "".
    """

    sort: str
    path: str
    value: Any
    message: str
    limit: Any = None


class Result:
    """The errors of a value without duplicate messages, and the number of passed checks. Of several failed
    alternatives, the one with most passed checks is reported.
    """

    __slots__ = ("_messages", "matches", "problems")

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.matches = 0
        self._messages: set[str] = set()

    def add(self, *problems: Problem) -> None:
        """Add errors."""
        for problem in problems:
            if problem.message not in self._messages:
                self._messages.add(problem.message)
                self.problems.append(problem)

    def merge(self, other: "Result") -> None:
        """Add the errors and checks of another result."""
        self.add(*other.problems)
        self.matches += other.matches


def check(value: Any, raw: Raw, correlation: Correlation | None = None, path: str = "") -> list[Problem]:
    """Return the errors of a value. Parts that `correlation` knows as unchanged are skipped."""
    return _ratcheted(value, raw, path, correlation).problems


def add_causes(problems: list[Problem], errors: ErrorList, at: FieldPath = None) -> None:
    """Add the causes for the errors of a value."""
    for sort, path, value, message, limit in problems:
        where: FieldPath = (at, path.removeprefix(".")) if path and path != "." else at or NOWHERE
        match sort:
            case "Required":
                errors.required(where)
            case "NotSupported":
                errors.unsupported(where, value, limit)
            case "TooLong":
                errors.too_long(where, limit)
            case "TooMany":
                errors.too_many(where, value, limit)
            case "TypeInvalid":
                errors.type_invalid(where, value, message)
            case _:
                errors.invalid(where, value, message)


def _ratcheted(value: Any, raw: Raw, path: str, correlation: Correlation | None) -> Result:
    result = _checked(value, raw, path, correlation)
    if result.problems and correlation is not None and correlation.equal:
        passed = Result()
        passed.matches = result.matches
        return passed
    return result


def _checked(value: Any, raw: Raw, path: str, correlation: Correlation | None) -> Result:
    result = Result()
    types = _types(raw)
    found = _type_of(value)
    typed = bool(types) or _format(raw) is not None
    if typed:
        result.merge(_type(value, found, types, raw, path))
    if value is None:
        result.merge(_enum(value, raw, path))
        return result
    result.matches += typed
    result.merge(_junctors(value, raw, path, correlation))
    result.matches += 1
    if found == "string":
        result.add(*_string(value, raw, path))
        result.matches += 1 + (_format(raw) is not None)
    elif found in ("integer", "number"):
        result.add(*_number(value if found == "integer" else float(value), raw, types, path))
        result.matches += 2
    elif found == "array":
        result.merge(_array(value, raw, path, correlation))
        result.matches += 1
    result.merge(_enum(value, raw, path))
    result.matches += 1
    if found == "object":
        result.merge(_object(value, raw, path, correlation))
        result.matches += 1
    result.matches += 1
    return result


def _types(raw: Raw) -> tuple[str, ...]:
    if raw.get(INT_OR_STRING):
        return ("integer", "string")
    return (raw["type"],) if raw.get("type") else ()


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer" if value in _INT64 else "number"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _wrong_type(path: str, expected: str, found: str) -> Problem:
    return Problem("TypeInvalid", path, found, f'{path} in body must be of type {expected}: "{found}"')


def _format(raw: Raw) -> str | None:
    """Return the format of a schema. None if it has none or an unknown one for its type."""
    name: str = raw.get("format") or ""
    types = _types(raw)
    only = types[0] if len(types) == 1 else ""
    if not name or only not in ("", "string", *_NUMBER_FORMATS):
        return None
    known = name in _NUMBER_FORMATS[only] if only in _NUMBER_FORMATS else format_of(name) is not None
    return name if known else None


def _type(value: Any, found: str, types: tuple[str, ...], raw: Raw, path: str) -> Result:
    result = Result()
    result.matches = 1
    named = _format(raw)
    whole = found == "number" and "integer" in types and _is_whole(value)
    matching = found in types or whole or (found == "integer" and "number" in types)
    wrong: Problem | None = None
    if value is None:
        if types and not raw.get("nullable"):
            wrong = _wrong_type(path, ",".join(types), "null")
    elif named and found not in ("string", "array") and not matching:
        wrong = _wrong_format(path, named, found)
    elif named and found in ("string", "array") and not {"number", "integer"} & set(types):
        pass  # the format is checked instead
    elif not matching:
        wrong = _wrong_type(path, ",".join(types), found)
    if wrong is not None:
        result.add(wrong)
        result.matches = 0
    return result


def _wrong_format(path: str, expected: str, found: str) -> Problem:
    return _wrong_type(path, expected, {"integer": "int64", "number": "float64"}.get(found, ""))


def _is_whole(value: float) -> bool:
    if not isfinite(value) or not -_JSON_INTEGERS <= value <= _JSON_INTEGERS - 1:
        return False
    nearest = round(value)
    return abs(value - nearest) < _EPSILON * abs(nearest) if value != nearest else True


def _string(value: str, raw: Raw, path: str) -> Iterator[Problem]:
    """Yield the errors of a string: the first broken rule, and its format."""
    longest, shortest, pattern = raw.get("maxLength"), raw.get("minLength"), raw.get("pattern")
    if longest is not None and len(value) > longest:
        yield Problem("TooLong", path, value, f"{path} in body should be at most {longest} chars long", longest)
    elif shortest is not None and len(value) < shortest:
        yield Problem("Invalid", path, value, f"{path} in body should be at least {shortest} chars long")
    elif pattern and (why := _unmatched_pattern(value, pattern)):
        yield Problem("Invalid", path, value, f"{path} in body should match '{why}'")
    named = _format(raw)
    is_of = None if named is None else format_of(named)
    if is_of is not None and not is_of(value):
        yield Problem("TypeInvalid", path, value, f"{path} in body must be of type {named}: {_quoted(value)}")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


def _unmatched_pattern(value: str, pattern: str) -> str:
    """Return the pattern that a string does not match. Empty if it matches."""
    try:
        return "" if compile_regex(pattern).matches(value) else pattern
    except ValueError as error:
        return f"{pattern}, but pattern is invalid: {error}"


def _number(value: float, raw: Raw, types: tuple[str, ...], path: str) -> Iterator[Problem]:
    only = types[0] if len(types) == 1 and types[0] in _NUMBER_FORMATS else ""
    named = (_format(raw) or "") if only else ""
    yield from _out_of_range(value, only, named, "Checked", path)
    factor = raw.get("multipleOf")
    if factor is not None:
        fits = [*_out_of_range(factor, only, named, "MultipleOf", path)]
        yield from fits
        yield from _multiple(value if not fits else float(value), factor, path)
    for word, title in (("minimum", "Minimum"), ("maximum", "Maximum")):
        bound = raw.get(word)
        if bound is not None:
            fits = [*_out_of_range(bound, only, named, f"{title} boundary", path)]
            yield from fits
            exclusive = bool(raw.get(f"exclusive{title}"))
            yield from _bound(value if not fits else float(value), bound, exclusive, word == "maximum", path)


def _out_of_range(value: float, only: str, named: str, what: str, path: str) -> Iterator[Problem]:
    """Yield an error if a number is outside of its type or format."""
    if only == "integer":
        fits = float(value).is_integer() if isfinite(value) else False
        fits = fits and int(value) in (_INT32 if named == "int32" else _INT64)
    else:
        fits = named != "float" or abs(value) <= _MAX_FLOAT32 or value in (inf, -inf)
    if not fits:
        form = f"with format {named}" if named else "(default format)"
        yield Problem("Invalid", "", "", f"{what} value must be of type {only} {form} in {path}")


def _multiple(value: float, factor: float, path: str) -> Iterator[Problem]:
    if type(value) is int:
        factor = int(factor)
        wrong = factor > 0 and value % factor != 0
    else:
        wrong = factor > 0 and not _is_whole(1 / factor * value if factor < 1 else value / factor)
    if factor <= 0:
        message = f"factor MultipleOf declared for {path} must be positive: {go_number(factor)}"
        yield Problem("Invalid", path, factor, message)
    elif wrong:
        yield Problem("Invalid", path, value, f"{path} in body should be a multiple of {go_number(factor)}")


def _bound(value: float, bound: float, exclusive: bool, upper: bool, path: str) -> Iterator[Problem]:
    if type(value) is int:
        bound = int(bound)
    wrong = value > bound if upper else value < bound
    if wrong or (exclusive and value == bound):
        than = "less than" if upper else "greater than"
        end = than if exclusive else f"{than} or equal to"
        yield Problem("Invalid", path, value, f"{path} in body should be {end} {go_number(bound)}")


def _array(value: list[Any], raw: Raw, path: str, correlation: Correlation | None) -> Result:
    result = Result()
    items = raw.get("items")
    if isinstance(items, Mapping):
        for index, item in enumerate(value):
            below = None if correlation is None else correlation.index(index)
            result.merge(_ratcheted(item, items, f"{path}[{index}]", below))
    size, fewest, most = len(value), raw.get("minItems"), raw.get("maxItems")
    if fewest is not None and size < fewest:
        result.add(Problem("Invalid", path, size, f"{path} in body should have at least {fewest} items"))
    if most is not None and size > most:
        result.add(Problem("TooMany", path, size, f"{path} in body should have at most {most} items", most))
    if raw.get("uniqueItems") and any(item in value[:index] for index, item in enumerate(value)):
        result.add(Problem("Invalid", path, "", f"{path} in body shouldn't contain duplicates"))
    result.matches += 1
    return result


def _object(value: Mapping[str, Any], raw: Raw, path: str, correlation: Correlation | None) -> Result:
    result = Result()
    size, fewest, most = len(value), raw.get("minProperties"), raw.get("maxProperties")
    if fewest is not None and size < fewest:
        result.add(Problem("Invalid", path, size, f"{path} in body should have at least {fewest} properties"))
    if most is not None and size > most:
        result.add(Problem("TooMany", path, size, f"{path} in body should have at most {most} properties", most))
    properties: Mapping[str, Raw] = raw.get("properties") or _NO_PROPERTIES
    more = raw.get("additionalProperties")
    for name, inner in value.items():
        schema = properties.get(name, more)
        at = f"{path}.{name}" if path or name not in properties else name
        if isinstance(schema, Mapping):
            ratchets = correlation is not None and not (path == "" and name in _ROOT_META)
            below = correlation.key(name) if correlation is not None and ratchets else None
            result.merge(_ratcheted(inner, schema, at, below))
        elif more is False:
            result.add(Problem("Invalid", path, name, f"{path}.{name} in body is a forbidden property"))
    for name in raw.get("required") or ():
        if name not in value:
            result.add(Problem("Required", f"{path}.{name}", "", f"{path}.{name} in body is required"))
    return result


def _enum(value: Any, raw: Raw, path: str) -> Result:
    result = Result()
    allowed = raw.get("enum")
    if allowed and not any(_is_one(value, one) for one in allowed):
        listed = [one if type(one) is str else shown(one) for one in allowed]
        result.add(Problem("NotSupported", path, value, f"{path} in body should be one of {listed}", listed))
    return result


def _is_one(value: Any, allowed: Any) -> bool:
    """Return whether a value equals the allowed one after type conversion."""
    if allowed is None or value is None:
        return False
    numbers = (int, float)
    if type(value) in numbers and type(allowed) in numbers:
        return bool((int(value) if type(allowed) is int else float(value)) == allowed)
    return type(value) is type(allowed) and bool(value == allowed)


def _junctors(value: Any, raw: Raw, path: str, correlation: Correlation | None) -> Result:
    result = Result()
    if raw.get("anyOf"):
        result.merge(_any_of(value, raw["anyOf"], path, correlation))
    if raw.get("oneOf"):
        result.merge(_one_of(value, raw["oneOf"], path, correlation))
    every = [_checked(value, one, path, correlation) for one in raw.get("allOf") or ()]
    for one in every:
        result.merge(one)
    failed = sum(1 for one in every if one.problems)
    if failed:
        none = ". None validated" if failed == len(every) else ""
        result.add(_whole(f'"{path}" must validate all the schemas (allOf){none}'))
    if isinstance(raw.get("not"), Mapping) and not _checked(value, raw["not"], path, correlation).problems:
        result.add(_whole(f'"{path}" must not validate the schema (not)'))
    result.matches += 1
    return result


def _whole(message: str) -> Problem:
    return Problem("Invalid", "", "", message)


def _any_of(value: Any, alternatives: list[Raw], path: str, correlation: Correlation | None) -> Result:
    best: Result | None = None
    for alternative in alternatives:
        found = _checked(value, alternative, path, correlation)
        if not found.problems:
            return found
        if best is None or found.matches > best.matches:
            best = found
    result = Result()
    result.add(_whole(f'"{path}" must validate at least one schema (anyOf)'))
    if best is not None:
        result.merge(best)
    return result


def _one_of(value: Any, alternatives: list[Raw], path: str, correlation: Correlation | None) -> Result:
    every = [_checked(value, one, path, correlation) for one in alternatives]
    valid = [one for one in every if not one.problems]
    if len(valid) == 1:
        return valid[0]
    result = Result()
    found = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    result.add(_whole(f'"{path}" must validate one and only one schema (oneOf). {found}'))
    if not valid:
        result.merge(max(every, key=lambda one: one.matches))
    return result
