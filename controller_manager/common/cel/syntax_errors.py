"""Reports syntax errors of an invalid text, with the error recovery of ANTLR parsers.

A superfluous token is skipped and a missing one is inserted. Otherwise tokens are skipped up to one that may follow a
current rule, and no further errors are reported until a token matches.
"""

from __future__ import annotations

import re
from contextlib import suppress

from controller_manager.common.cel.grammar import (
    EPSILON,
    RULES,
    TOKENS,
    NoViableAlternative,
    ParsedRule,
    ParserState,
    next_tokens,
    predict,
)
from controller_manager.common.cel.lexer import EOF, Token, tokenize
from controller_manager.common.cel.syntax import Issue, issue_at

MAX_RECOVERIES = 30
MAX_LOOKAHEAD = 256  # tokens skipped in one recovery
MAX_ERRORS = 100


def syntax_errors(text: str) -> list[Issue]:
    """Return the syntax errors of a text in the order of detection."""
    tokens, removed = _tokens(text)
    walker = _Walker(text, tokens, removed)
    with suppress(_GaveUp, RecursionError):
        walker.rule("start", 0, None)
    errors = [(begin, f"token recognition error at: {_quoted(text[begin:end])}") for begin, end in removed]
    found = [*errors, *walker.errors][:MAX_ERRORS]
    return [issue_at(text, offset, f"Syntax error: {message}") for offset, message in found] + walker.other


_ESCAPE = re.compile(r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7][0-7])")
_PART_OF_ESCAPE = re.compile(r"\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?)?")
_PART_OF_NAME = re.compile(r"`[A-Za-z0-9_.\-/ ]*")


def _tokens(text: str) -> tuple[list[Token], list[tuple[int, int]]]:
    """Return the tokens of a text, and the ranges that are not tokens."""
    tokens: list[Token] = []
    removed: list[tuple[int, int]] = []
    offset = 0
    while True:
        more, end = tokenize(text, offset)
        tokens += more
        if end >= len(text):
            return tokens, removed
        offset = _end_of_no_token(text, end) + 1
        removed.append((end, offset))


def _end_of_no_token(text: str, start: int) -> int:
    """Return where an incomplete token is detected as invalid."""
    first = text[start]
    if first in "=&|":
        return start + 1
    if first == "`":
        found = _PART_OF_NAME.match(text, start)
        return found.end() if found else start
    if first not in "\"'":
        return start
    at = start + 1
    while at < len(text) and text[at] not in "\n\r":
        if text[at] != "\\":
            at += 1
            continue
        escape = _ESCAPE.match(text, at)
        if escape is None:
            found = _PART_OF_ESCAPE.match(text, at)
            return found.end() if found else at
        at = escape.end()
    return at


def _quoted(text: str) -> str:
    shown = text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{shown}'"


class _Mismatch(Exception):
    """A token is not allowed here."""


class _GaveUp(Exception):
    """Too many errors to continue."""


class _Context:
    """A current rule: its caller, and where the caller continues."""

    __slots__ = ("follow", "parent", "precedence")

    def __init__(self, parent: _Context | None, follow: ParserState | None, precedence: int) -> None:
        self.parent = parent
        self.follow = follow
        self.precedence = precedence


class _Walker:
    def __init__(self, text: str, tokens: list[Token], removed: list[tuple[int, int]]) -> None:
        self.text = text
        self.tokens = tokens
        self.removed = removed
        self.kinds = [token.kind for token in tokens] + [EOF]
        self.at = 0
        self.errors: list[tuple[int, str]] = []
        self.other: list[Issue] = []
        self.recovering = False
        self.recoveries = 0
        self.context = _Context(None, None, 0)
        self.state = ParserState("start")
        self.last_error: tuple[int, set[ParserState]] | None = None

    @property
    def kind(self) -> str:
        """Return the kind of the next token."""
        return self.kinds[min(self.at, len(self.kinds) - 1)]

    def rule(self, name: str, precedence: int, follow: ParserState | None) -> None:
        """Parse a rule; report an error in it and skip the rest."""
        outer, begin = self.context, self.at
        self.context = _Context(outer if follow is not None else None, follow, precedence)
        try:
            self.walk(RULES[name])
        except NoViableAlternative as error:
            self.report_no_alternative(error)
            self.recover()
        except _Mismatch:
            self.report(f"mismatched input {self.shown()} expecting {_listed(self.expected())}")
            if name == "escapeIdent":
                self.other.append(issue_at(self.text, self.offset(begin), "unsupported ident kind"))
            self.recover()
        finally:
            self.context = outer

    def walk(self, part: ParsedRule) -> None:
        """Parse a part of a rule."""
        if part.kind == "row":
            for inner in part.parts:
                self.walk(inner)
            return
        self.state = part.state
        if part.kind in ("token", "set"):
            self.match(part)
        elif part.kind == "rule":
            self.rule(part.rule, part.value, part.state.target)
        elif part.kind == "opt":
            self.sync(loop=False)
            if self.kind in next_tokens(part.state.steps[0]):
                self.walk(part.parts[0])
        elif part.kind == "alt":
            self.sync(loop=False)
            self.walk(part.parts[self.choose(part.state, part.predicted) - 1])
        elif part.kind == "star":
            self.star(part)
        elif part.kind == "plus":
            self.plus(part)

    def star(self, part: ParsedRule) -> None:
        """Parse a part zero or more times."""
        self.sync(loop=False)
        while self.goes_on(part.state, part.predicted):
            self.walk(part.parts[0])
            self.state = part.back
            self.sync(loop=True)

    def plus(self, part: ParsedRule) -> None:
        """Parse a part one or more times."""
        self.sync(loop=False)
        while True:
            self.walk(part.parts[0])
            self.state = part.back
            self.sync(loop=True)
            if not self.goes_on(part.back, part.predicted):
                return

    def goes_on(self, decision: ParserState, predicted: bool) -> bool:
        """Return whether a loop continues."""
        if predicted:
            return self.choose(decision, predicted) == 1
        return self.kind in next_tokens(decision.steps[0])

    def choose(self, decision: ParserState, predicted: bool) -> int:
        """Return the alternative, from 1. Raises NoViableAlternative."""
        if not predicted:
            for number, step in enumerate(decision.steps, start=1):
                if self.kind in next_tokens(step):
                    return number
            raise NoViableAlternative(self.at, self.at)
        stack = []
        context: _Context | None = self.context
        while context is not None:
            if context.follow is not None:
                stack.append(context.follow)
            context = context.parent
        return predict(decision, self.kinds, self.at, self.context.precedence, tuple(reversed(stack)))

    def match(self, part: ParsedRule) -> None:
        """Consume a token, skip a superfluous one before it, or assume a missing one. Raises _Mismatch."""
        if self.kind in part.tokens:
            self.right_again()
            self.consume()
            return
        self.count_recovery()
        if self.without_next():
            self.consume()
            return
        assert part.state.target is not None
        if self.kind not in self.following(part.state.target):
            raise _Mismatch
        self.report(f"missing {_listed(self.expected())} at {self.shown()}")

    def sync(self, loop: bool) -> None:
        """Check whether the next token is allowed here, before a decision. Raises _Mismatch."""
        tokens = next_tokens(self.state)
        if self.recovering or EPSILON in tokens or self.kind in tokens:
            return
        if not loop:
            if not self.without_next():
                raise _Mismatch
            return
        self.report(f"extraneous input {self.shown()} expecting {_listed(self.expected())}")
        self.pass_over(self.expected() | self.after_rules())

    def without_next(self) -> bool:
        """Skip the next token and return True if the one after it is allowed here."""
        if self.kinds[min(self.at + 1, len(self.kinds) - 1)] not in self.expected():
            return False
        self.report(f"extraneous input {self.shown()} expecting {_listed(self.expected())}")
        self.consume()
        self.right_again()
        return True

    def consume(self) -> None:
        """Consume a token."""
        self.at = min(self.at + 1, len(self.kinds) - 1)

    def right_again(self) -> None:
        """Record a matching token, after which errors are reported again."""
        self.recovering = False
        self.last_error = None

    def recover(self) -> None:
        """Skip tokens up to one that may follow a current rule."""
        self.count_recovery()
        if self.last_error is not None and self.last_error[0] == self.at and self.state in self.last_error[1]:
            self.consume()
        states = self.last_error[1] if self.last_error is not None else set()
        states.add(self.state)
        self.last_error = (self.at, states)
        self.pass_over(self.after_rules())

    def count_recovery(self) -> None:
        """Count a recovery. Raises _GaveUp."""
        self.recoveries += 1
        if self.recoveries > MAX_RECOVERIES:
            self.add(self.at, f"error recovery attempt limit exceeded: {MAX_RECOVERIES}")
            raise _GaveUp

    def pass_over(self, until: set[str]) -> None:
        """Skip tokens up to one of a set. Raises _GaveUp."""
        passed = 0
        while self.kind != EOF and self.kind not in until:
            if passed >= MAX_LOOKAHEAD:
                message = f"error recovery token lookahead limit exceeded: {MAX_LOOKAHEAD}"
                self.other.append(Issue(-1, 0, message))
                raise _GaveUp
            passed += 1
            self.consume()

    def after_rules(self) -> set[str]:
        """Return the tokens that may follow any current rule."""
        found: set[str] = set()
        context: _Context | None = self.context
        while context is not None and context.follow is not None:
            found |= next_tokens(context.follow)
            context = context.parent
        return found - {EPSILON}

    def expected(self) -> set[str]:
        """Return the tokens that are allowed here."""
        return self.following(self.state)

    def following(self, state: ParserState) -> set[str]:
        """Return the tokens allowed at a state, including those after rules that may end there."""
        found = set(next_tokens(state))
        context: _Context | None = self.context
        while EPSILON in found:
            found.discard(EPSILON)
            if context is None or context.follow is None:
                found.add(EOF)
                break
            found |= next_tokens(context.follow)
            context = context.parent
        return found

    def shown(self) -> str:
        """Return the next token for messages."""
        return _quoted(EOF if self.kind == EOF else self.tokens[self.at].text)

    def offset(self, at: int) -> int:
        """Return where a token begins."""
        return self.tokens[at].offset if at < len(self.tokens) else len(self.text)

    def report_no_alternative(self, error: NoViableAlternative) -> None:
        """Report that no alternative matches; keywords used as names have a special message."""
        start, at = error.start, error.at
        begin = self.offset(start)
        end = len(self.text) if at >= len(self.tokens) else self.offset(at) + len(self.tokens[at].text)
        text = ""
        for removed, after in [*self.removed, (end, end)]:
            text += self.text[begin : min(removed, end)]
            begin = max(begin, after)
        message = f"no viable alternative at input {_quoted(text if start < len(self.tokens) else EOF)}"
        if keyword := _KEYWORD_AS_NAME.search(message):
            message = f"mismatched input '{keyword[1]}' expecting IDENTIFIER"
        self.report(message, at)

    def report(self, message: str, at: int | None = None) -> None:
        """Report an error at a token, unless no token has matched since the last error."""
        if not self.recovering:
            self.recovering = True
            self.add(self.at if at is None else at, message)

    def add(self, at: int, message: str) -> None:
        """Add an error at a token."""
        self.errors.append((self.offset(at), message))


_KEYWORD_AS_NAME = re.compile("no viable alternative at input '.(true|false|null)'")


def _listed(tokens: set[str]) -> str:
    """Return tokens as a list for messages."""
    names = [_name(token) for token in TOKENS if token in tokens]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"


def _name(token: str) -> str:
    return token if token == EOF or token.isupper() or "_" in token else f"'{token}'"
