"""How connections are secured right now: certificates by name, and authorities of clients, all of which may change."""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller_manager.base.clock import monotonic
from controller_manager.base.errors import CannotStart
from controller_manager.base.log import get_logger
from controller_manager.serving import names
from controller_manager.serving.pairs import PairSource
from controller_manager.serving.tls import DEFAULT_POLICY, KeyPair, Policy, context_of

_LOOK_EVERY = 5.0  # seconds between two looks at the sources
_MOST_WORDS = 200  # characters of a refusal


@dataclass(frozen=True, slots=True)
class Named:
    """A pair for clients that ask for certain names: those of the patterns, or those of the certificate."""

    source: PairSource
    patterns: Sequence[str] = ()


class UnusablePair(CannotStart):
    """A pair cannot be served; the message names its source and nothing of its content."""


class _Wardrobe:
    """Contexts alike but for their certificates; the first is for whoever asked for no other."""

    def __init__(self, contexts: Sequence[ssl.SSLContext], table: dict[str, int]) -> None:
        self._default, *self._named = contexts
        self._table = table
        if table:
            for context in contexts:
                context.sni_callback = self._change

    def for_address(self, address: str) -> ssl.SSLContext:
        number = names.by_address(self._table, address) if self._table else None
        return self._default if number is None else self._named[number]

    def _change(self, connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext) -> None:
        if server_name is not None:
            number = names.by_name(self._table, server_name)
            connection.context = self._default if number is None else self._named[number]


class Contexts:
    """The TLS context of each new connection; a call names the local address it came to.

    Sources are looked at again when a connection comes and the last look was some seconds ago, so nothing runs while
    nobody asks. A pair that is broken or half written changes nothing: the one before is shown on, and the log says
    so once. `authorities` gives those of clients (PEM); `renew` is to be called when they change. A connection keeps
    the context it began with. Raises UnusablePair if a pair is of no use from the start, ValueError if authorities are.
    """

    def __init__(
        self,
        default: PairSource,
        named: Sequence[Named] = (),
        authorities: Callable[[], bytes] = bytes,
        policy: Policy = DEFAULT_POLICY,
    ) -> None:
        self._sources = (default, *(one.source for one in named))
        self._patterns = [one.patterns for one in named]
        self._authorities = authorities
        self._policy = policy
        self._log = get_logger("serving")
        self._problems: dict[int, str] = {}
        self._pairs = [_first(source) for source in self._sources]
        self._looked = monotonic()
        self._wardrobe: _Wardrobe | None = self._dress()

    def __call__(self, address: str) -> ssl.SSLContext:
        """The context for a connection to the local `address`."""
        now = monotonic()
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            self._look()
        if self._wardrobe is None:
            self._wardrobe = self._dress()
        return self._wardrobe.for_address(address)

    def renew(self) -> None:
        """Make new connections see changed authorities."""
        self._wardrobe = None

    def _dress(self) -> _Wardrobe:
        authorities = self._authorities()
        contexts = [context_of(pair, authorities, self._policy) for pair in self._pairs]
        shown = [names.names_of(pair.certificate) for pair in self._pairs[1:]]
        return _Wardrobe(contexts, names.name_table(self._patterns, shown))

    def _look(self) -> None:
        for number, source in enumerate(self._sources):
            try:
                pair = source.read()
                if pair != self._pairs[number]:
                    _check(pair)
            except (OSError, ValueError) as error:
                self._complain(number, _why(error))
                continue
            self._problems.pop(number, None)
            if pair != self._pairs[number]:
                self._pairs[number] = pair
                self._wardrobe = None
                self._log.info("a new certificate is shown from now on", source=source.name)

    def _complain(self, number: int, problem: str) -> None:
        if self._problems.get(number) != problem:
            self._problems[number] = problem
            source = self._sources[number].name
            self._log.error("a certificate cannot be used; the one before it stays", source=source, problem=problem)


def _first(source: PairSource) -> KeyPair:
    try:
        pair = source.read()
        _check(pair)
    except (OSError, ValueError) as error:
        raise UnusablePair(f"{source.name} cannot be served: {_why(error)}") from error
    return pair


def _why(error: OSError | ValueError) -> str:
    """The refusal in words; of `ssl` its reason only, since the rest is about its own code."""
    if isinstance(error, ssl.SSLError):
        return error.reason.lower().replace("_", " ") if error.reason else "they are no pair in PEM"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {(error.strerror or '').lower()}"
    return str(error)[:_MOST_WORDS]


def _check(pair: KeyPair) -> None:
    """Raise OSError or ValueError unless the pair can be shown."""
    context_of(pair)
    names.names_of(pair.certificate)
