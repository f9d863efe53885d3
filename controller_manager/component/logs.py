"""The flags for the log of a process; for `configure_logs`."""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from controller_manager.component.features import LOGGING_ALPHA, LOGGING_BETA, FeatureOptions
from controller_manager.options import Duration, Options, Parsed, Quantity, flag
from controller_manager.options.types import FlagType

_LARGEST_LEVEL = 2**31 - 1
_LARGEST_BUFFER = 1 << 30


def _parse_patterns(text: str) -> tuple[tuple[str, int], ...]:
    """`pattern=N` pairs; empty ones, as behind a last comma, don't count."""
    return tuple(map(_parse_pattern, filter(None, text.split(","))))


def _parse_pattern(text: str) -> tuple[str, int]:
    pattern, _, level = text.partition("=")
    if not pattern or not (level.isascii() and level.isdigit()) or int(level) > _LARGEST_LEVEL:
        raise ValueError(f"{text!r} is not of the form pattern=N")
    return pattern, int(level)


def _format_patterns(patterns: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{pattern}={level}" for pattern, level in patterns)


_PATTERNS = FlagType("pattern=N,...", _parse_patterns, _format_patterns, lambda before, more: before + more)


class LoggingOptions(Options):
    """Flags of logging: its level, its form and its destination."""

    title: ClassVar[str] = "Logs"

    logging_format: str = flag(
        "text", f"form of the log lines; json needs the feature gate {LOGGING_BETA}", choices=("text", "json")
    )
    v: int = flag(
        0,
        "how much is logged: 1 and more tell the flags at the start, 4 every reconcile and every request that an API "
        "server answers, 6 every request to an API server",
        short="v",
        minimum=0,
        maximum=_LARGEST_LEVEL,
    )
    vmodule: Annotated[tuple[tuple[str, int], ...], _PATTERNS] = flag(
        (),
        "levels of single files, where they are higher than -v: a pattern (*, ?) is the name of a file without .py, or "
        "the last parts of its path; the first that matches counts; only for the text format",
    )
    log_flush_frequency: Duration = flag("5s", "how long a buffered line waits at most", minimum=0)
    log_text_split_stream: bool = flag(
        False,
        "in the text format, write information to standard output and only warnings and worse to standard error; "
        f"needs the feature gate {LOGGING_ALPHA}",
    )
    log_text_info_buffer_size: Quantity = flag(
        0,
        "in the text format with split streams, buffer so many bytes of information, such as 512 or 64Ki; 0 buffers "
        f"nothing; needs the feature gate {LOGGING_ALPHA}",
        maximum=_LARGEST_BUFFER,
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.vmodule and self.logging_format != "text":
            raise ValueError("--vmodule can only be used with --logging-format=text")
        return self


def logs_allowed(parsed: Parsed) -> Iterator[str]:
    """Yield a sentence for each flag that needs a feature gate which is off."""
    options, enabled = parsed[LoggingOptions], parsed[FeatureOptions].enabled
    for what, gate, is_asked in (
        ("--logging-format=json", LOGGING_BETA, options.logging_format == "json"),
        ("--log-text-split-stream", LOGGING_ALPHA, options.log_text_split_stream),
        ("--log-text-info-buffer-size", LOGGING_ALPHA, options.log_text_info_buffer_size > 0),
    ):
        if is_asked and not enabled(gate):
            yield f"{what} needs --feature-gates={gate}=true"
