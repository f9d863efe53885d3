"""The grammar of CEL as a transition network, with ALL(*) prediction of alternatives.

It is only used for invalid texts: the error messages of cel-go depend on the tokens the parser has looked at before the
error. ALL(*) parsing is described by Parr, Harwell and Fisher (OOPSLA 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from controller_manager.common.cel.lexer import EOF

# Token names in messages, in the order of token types.
TOKENS = (
    EOF,
    *("==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":"),
    *("+", "*", "/", "%", "true", "false", "null", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES"),
    *("IDENTIFIER", "ESC_IDENTIFIER"),
)
EPSILON = ""  # in a set of tokens: the rule may end here


class ParserState:
    """A state of the network: transitions by token, rule calls, or transitions without a token."""

    __slots__ = ("call", "precedence", "rule", "steps", "target", "tokens")

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.steps: list[ParserState] = []
        self.tokens: frozenset[str] = frozenset()
        self.target: ParserState | None = None  # target of a token or of the end of a called rule
        self.call: str | None = None
        self.precedence = 0  # of a transition that requires one


class ParsedRule:
    """A part of a rule, with the states at which its errors are reported."""

    __slots__ = ("back", "kind", "parts", "predicted", "rule", "state", "tokens", "value")

    def __init__(self, kind: str, parts: tuple[ParsedRule, ...] = (), **fields: object) -> None:
        self.kind = kind
        self.parts = parts
        self.tokens: frozenset[str] = fields.get("tokens", frozenset())  # type: ignore[assignment]
        self.rule = str(fields.get("rule", ""))
        self.value = int(fields.get("value", 0))  # type: ignore[call-overload]
        self.predicted = bool(fields.get("predicted", False))
        self.state: ParserState = ParserState("")
        self.back: ParserState = ParserState("")


def _part(item: ParsedRule | str) -> ParsedRule:
    if isinstance(item, ParsedRule):
        return item
    return ParsedRule("token", tokens=frozenset({item}))


def _row(*items: ParsedRule | str) -> ParsedRule:
    return ParsedRule("row", tuple(map(_part, items)))


def _rule(name: str, precedence: int = 0) -> ParsedRule:
    return ParsedRule("rule", rule=name, value=precedence)


def _opt(*items: ParsedRule | str) -> ParsedRule:
    return ParsedRule("opt", (_row(*items),))


def _star(*items: ParsedRule | str, predicted: bool = False) -> ParsedRule:
    return ParsedRule("star", (_row(*items),), predicted=predicted)


def _plus(*items: ParsedRule | str, predicted: bool = False) -> ParsedRule:
    return ParsedRule("plus", (_row(*items),), predicted=predicted)


def _alt(*rows: ParsedRule, predicted: bool = True) -> ParsedRule:
    return ParsedRule("alt", rows, predicted=predicted)


def _one_of(*tokens: str) -> ParsedRule:
    return ParsedRule("set", tokens=frozenset(tokens))


def _from(precedence: int) -> ParsedRule:
    return ParsedRule("precedence", value=precedence)


RULES: dict[str, ParsedRule] = {
    "start": _row(_rule("expr"), EOF),
    "expr": _row(_rule("or"), _opt("?", _rule("or"), ":", _rule("expr"))),
    "or": _row(_rule("and"), _star("||", _rule("and"))),
    "and": _row(_rule("relation"), _star("&&", _rule("relation"))),
    "relation": _row(
        _rule("calc"),
        _star(_from(1), _one_of("<", "<=", ">=", ">", "==", "!=", "in"), _rule("relation", 2), predicted=True),
    ),
    "calc": _row(
        _rule("unary"),
        _star(
            _alt(
                _row(_from(2), _one_of("*", "/", "%"), _rule("calc", 3)),
                _row(_from(1), _one_of("+", "-"), _rule("calc", 2)),
            ),
            predicted=True,
        ),
    ),
    "unary": _row(
        _alt(
            _row(_rule("member")),
            _row(_plus("!"), _rule("member")),
            _row(_plus("-", predicted=True), _rule("member")),
        )
    ),
    "member": _row(
        _rule("primary"),
        _star(
            _alt(
                _row(_from(3), ".", _opt("?"), _rule("escapeIdent")),
                _row(_from(2), ".", "IDENTIFIER", "(", _opt(_rule("exprList")), ")"),
                _row(_from(1), "[", _opt("?"), _rule("expr"), "]"),
            ),
            predicted=True,
        ),
    ),
    "primary": _row(
        _alt(
            _row(_opt("."), "IDENTIFIER"),
            _row(_opt("."), "IDENTIFIER", "(", _opt(_rule("exprList")), ")"),
            _row("(", _rule("expr"), ")"),
            _row("[", _opt(_rule("listInit")), _opt(","), "]"),
            _row("{", _opt(_rule("entries")), _opt(","), "}"),
            _row(_opt("."), "IDENTIFIER", _star(".", "IDENTIFIER"), "{", _opt(_rule("fields")), _opt(","), "}"),
            _row(_rule("literal")),
        )
    ),
    "exprList": _row(_rule("expr"), _star(",", _rule("expr"))),
    "listInit": _row(_rule("optExpr"), _star(",", _rule("optExpr"), predicted=True)),
    "fields": _row(
        _rule("optField"), ":", _rule("expr"), _star(",", _rule("optField"), ":", _rule("expr"), predicted=True)
    ),
    "optField": _row(_opt("?"), _rule("escapeIdent")),
    "entries": _row(
        _rule("optExpr"), ":", _rule("expr"), _star(",", _rule("optExpr"), ":", _rule("expr"), predicted=True)
    ),
    "escapeIdent": _row(_alt(_row("IDENTIFIER"), _row("ESC_IDENTIFIER"), predicted=False)),
    "optExpr": _row(_opt("?"), _rule("expr")),
    "literal": _row(
        _alt(
            _row(_opt("-"), "NUM_INT"),
            _row("NUM_UINT"),
            _row(_opt("-"), "NUM_FLOAT"),
            *(_row(one) for one in ("STRING", "BYTES", "true", "false", "null")),
        )
    ),
}


class Network(NamedTuple):
    """The first and last states of rules, and the return states of the calls of each rule."""

    begins: dict[str, ParserState]
    ends: dict[str, ParserState]
    follows: dict[str, list[tuple[ParserState, int]]]  # with the precedence of the call


def _build() -> Network:
    network = Network({}, {}, {name: [] for name in RULES})
    for name in RULES:
        network.begins[name], network.ends[name] = ParserState(name), ParserState(name)
    for name, part in RULES.items():
        network.begins[name].steps = [_states(part, name, network.ends[name], network)]
    return network


def _states(part: ParsedRule, rule: str, after: ParserState, network: Network) -> ParserState:
    """Create the states of a part followed by `after`; return the first."""
    if part.kind == "row":
        for inner in reversed(part.parts):
            after = _states(inner, rule, after, network)
        return after
    state = part.state = ParserState(rule)
    if part.kind in ("token", "set"):
        state.tokens, state.target = part.tokens, after
    elif part.kind == "rule":
        state.call, state.target, state.precedence = part.rule, after, part.value
        network.follows[part.rule].append((after, part.value))
    elif part.kind == "precedence":
        state.precedence, state.steps = part.value, [after]
    elif part.kind == "alt":
        state.steps = [_states(row, rule, after, network) for row in part.parts]
    elif part.kind == "opt":
        state.steps = [_states(part.parts[0], rule, after, network), after]
    else:
        part.back = ParserState(rule)
        first = _states(part.parts[0], rule, part.back, network)
        if part.kind == "star":
            state.steps, part.back.steps = [first, after], [state]
        else:
            state.steps, part.back.steps = [first], [state, after]
    return state


NETWORK = _build()


@lru_cache(1024)
def next_tokens(state: ParserState) -> frozenset[str]:
    """Return the tokens allowed at a state; EPSILON is included if its rule may end there."""
    found: set[str] = set()
    pending, seen = [state], set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        found |= current.tokens
        pending += current.steps
        if current is NETWORK.ends[current.rule]:
            found.add(EPSILON)
        elif current.call is not None:
            inner = next_tokens(NETWORK.begins[current.call])
            found |= inner - {EPSILON}
            if EPSILON in inner and current.target is not None:
                pending.append(current.target)
    return frozenset(found)


Stack = tuple[ParserState, ...]  # return states of the called rules, the innermost last


class _Configuration(NamedTuple):
    """A possible parse of the tokens so far.

    `outer`: it has left the deciding rule; `lowest`: it returned to a caller without precedence.
    """

    state: ParserState
    alternative: int
    stack: Stack
    outer: bool = False
    lowest: bool = False


class NoViableAlternative(Exception):
    """No alternative matches the tokens from `start` on; `at` is the first token that matches none."""

    def __init__(self, start: int, at: int) -> None:
        super().__init__(start, at)
        self.start = start
        self.at = at


def predict(decision: ParserState, kinds: list[str], at: int, precedence: int, stack: Stack) -> int:
    """Return the alternative (from 1) for the tokens from `at` on.

    First any caller of the rule is assumed; if more than one alternative remains, the callers in `stack` decide. Of
    equally matching alternatives the first is chosen. Raises NoViableAlternative.
    """
    for length in range(1, _MAX_DECIDING + 1):
        chosen = _DECIDED.get((decision, precedence, tuple(kinds[at : at + length])))
        if chosen is not None:
            return chosen
    chosen, looked_at = _simulate(decision, kinds, at, precedence, None)
    if chosen is None:
        chosen = _simulate(decision, kinds, at, precedence, stack)[0]
    elif looked_at <= _MAX_DECIDING and len(_DECIDED) < _MAX_DECIDED:
        _DECIDED[decision, precedence, tuple(kinds[at : at + looked_at])] = chosen
    return chosen or 1


# Decisions by tokens that do not depend on the callers; a cache.
_MAX_DECIDING, _MAX_DECIDED = 6, 4096
_DECIDED: dict[tuple[ParserState, int, tuple[str, ...]], int] = {}


def _simulate(
    decision: ParserState, kinds: list[str], at: int, precedence: int, stack: Stack | None
) -> tuple[int | None, int]:
    """Return the alternative (None if the callers must decide), and the number of tokens looked at."""
    starts = [_Configuration(target, number, stack or ()) for number, target in enumerate(decision.steps, start=1)]
    known = _closure(starts, stack is not None, precedence)
    if stack is None and decision.rule in _RECURSIVE:
        known = _without_doubles(known)
    index = at
    while True:
        token = kinds[min(index, len(kinds) - 1)]
        reached = _closure(_moved(known, token), stack is not None, None)
        if token == EOF:
            reached = {one for one in reached if one.state is NETWORK.ends[one.state.rule]}
        if not reached:
            finished = [one.alternative for one in known if one.outer or _is_end(one)]
            if finished:
                return min(finished), index - at + 1
            raise NoViableAlternative(at, index)
        alternatives = {one.alternative for one in reached}
        if len(alternatives) == 1:
            return alternatives.pop(), index - at + 1
        groups = _groups(reached)
        if stack is None:
            if token == EOF or _conflict(groups, reached):
                return None, index - at + 1
        elif token == EOF or len({min(group) for group in groups}) == 1:
            return min(min(group) for group in groups), index - at + 1
        known = reached
        index += 1


_RECURSIVE = frozenset({"relation", "calc", "member"})  # left-recursive: a loop decides whether they continue


def _without_doubles(known: set[_Configuration]) -> set[_Configuration]:
    """Remove ways to end a rule that are equivalent to continuing in it: operators belong to their rule."""
    own = {(one.state, one.stack) for one in known if one.alternative == 1}
    return {one for one in known if one.alternative == 1 or one.lowest or (one.state, one.stack) not in own}


def _is_end(one: _Configuration) -> bool:
    return one.state is NETWORK.ends[one.state.rule] and not one.stack


def _groups(configurations: Iterable[_Configuration]) -> list[set[int]]:
    """Return the alternatives by state and stack."""
    groups: dict[tuple[ParserState, Stack], set[int]] = {}
    for one in configurations:
        groups.setdefault((one.state, one.stack), set()).add(one.alternative)
    return list(groups.values())


def _conflict(groups: list[set[int]], configurations: Iterable[_Configuration]) -> bool:
    by_state: dict[ParserState, set[int]] = {}
    for one in configurations:
        by_state.setdefault(one.state, set()).add(one.alternative)
    return any(len(group) > 1 for group in groups) and all(len(group) > 1 for group in by_state.values())


def _moved(known: Iterable[_Configuration], token: str) -> Iterator[_Configuration]:
    for one in known:
        if token in one.state.tokens and one.state.target is not None:
            yield one._replace(state=one.state.target)
        elif token == EOF and _is_end(one):
            yield one


def _closure(starts: Iterable[_Configuration], full: bool, precedence: int | None) -> set[_Configuration]:
    """Return all configurations reachable without a token; transitions of too low precedence are excluded at first."""
    found: set[_Configuration] = set()
    pending = [(one, 0) for one in starts]
    seen: set[tuple[_Configuration, bool]] = set()
    while pending:
        one, depth = pending.pop()
        if (one, depth == 0) in seen:
            continue
        seen.add((one, depth == 0))
        pending.extend(_steps(one, depth, full, precedence, found.add))
    return found


def _steps(
    one: _Configuration,
    depth: int,
    full: bool,
    precedence: int | None,
    keep: Callable[[_Configuration], None],
) -> Iterator[tuple[_Configuration, int]]:
    state = one.state
    if state is NETWORK.ends[state.rule]:
        if one.stack:
            yield one._replace(state=one.stack[-1], stack=one.stack[:-1]), depth - 1
        elif full or not NETWORK.follows[state.rule]:
            keep(one)
        else:
            for follow, asked in NETWORK.follows[state.rule]:
                lowest = one.lowest or (asked == 0 and state.rule in _RECURSIVE and not one.outer)
                yield one._replace(state=follow, outer=True, lowest=lowest), depth - 1
    elif state.tokens:
        keep(one)
    elif state.call is not None and state.target is not None:
        yield one._replace(state=NETWORK.begins[state.call], stack=(*one.stack, state.target)), depth + 1
    elif precedence is None or depth != 0 or not state.precedence or state.precedence >= precedence:
        for step in state.steps:
            yield one._replace(state=step), depth
