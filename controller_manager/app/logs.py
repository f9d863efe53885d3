"""How this process speaks, as its flags describe it."""

from typing import ClassVar

from controller_manager.base.log import configure
from controller_manager.options import Options, Parsed, flag


class LogOptions(Options):
    """How the process speaks."""

    title: ClassVar[str] = "Logs"

    logging_format: str = flag("text", "form of the log lines", choices=("text", "json"))
    v: int = flag(0, "how much is logged; 4 and more show every reconcile", short="v", minimum=0)


def configure_logs(parsed: Parsed) -> None:
    """Log as the flags say from now on."""
    options = parsed[LogOptions]
    configure(json=options.logging_format == "json", verbosity=options.v)
