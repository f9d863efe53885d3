"""Flags of serving: ports, addresses, certificates, and bounds of time and size."""

import re
from ipaddress import ip_address
from typing import ClassVar

from pydantic import field_validator

from controller_manager.common.base.regex import Regex, compile_regex
from controller_manager.common.component.secure_serving import SecureServingOptions
from controller_manager.common.options.flag import flag
from controller_manager.common.options.types import Duration, Quantity, StringList


class ServingOptions(SecureServingOptions):
    """The serving of requests: ports, addresses, certificates, and bounds of time and size."""

    title: ClassVar[str] = "Serving"

    workers: int = flag(
        1,
        "Number of processes that serve requests, on one port and one store; not with --storage-backend=memory. "
        "Limits of concurrent requests apply to all together; cache sizes, numbers of connections, and the rates "
        "of the plugin EventRateLimit apply to each process.",
        minimum=1,
        maximum=64,
    )
    secure_port: int = flag(6443, "Port to serve HTTPS on; 0 selects a free one.", minimum=0, maximum=65535)
    cert_dir: str = flag("", "Folder of the server's certificate authorities; the data folder when empty.")
    advertise_address: str = flag(
        "", "Address at which pods and nodes reach this server; determined from the host's default route when empty."
    )
    request_timeout: Duration = flag("1m", "Timeout of write requests; reads have separate limits.", minimum=0.001)
    min_request_timeout: int = flag(
        1800,
        "Minimum number of seconds a watch stays open if the client sets no timeout; the maximum is twice that.",
        minimum=1,
    )
    max_request_bytes: Quantity = flag("3Mi", "Maximum size of a request body.", minimum=1024)
    shutdown_delay_duration: Duration = flag(
        "0s", "How long requests are still served after a termination signal, while /readyz fails.", minimum=0
    )
    livez_grace_period: Duration = flag(
        "0s", "How long after the start /livez may succeed although startup is not complete.", minimum=0
    )

    strict_transport_security_directives: StringList = flag(
        (),
        "Directives of the Strict-Transport-Security header of all responses: max-age=SECONDS, includeSubDomains,"
        " preload. Without any, the header is not sent.",
    )
    cors_allowed_origins: StringList = flag(
        (),
        "Origins allowed for CORS, as regular expressions. Each must match the whole host: begin it with ^ or //, and "
        "end it with $ or :, as in //example\\.com(:|$).",
    )
    goaway_chance: float = flag(
        0.0,
        "Fraction of responses after which the connection is closed, so that clients behind a load balancer are "
        "redistributed; at most 0.02.",
        minimum=0,
        maximum=0.02,
    )

    @property
    def origins(self) -> tuple[Regex, ...]:
        """The expressions of allowed origins."""
        return tuple(map(compile_regex, self.cors_allowed_origins))

    @field_validator("strict_transport_security_directives")
    @classmethod
    def _are_directives(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [each for each in value if not re.fullmatch(r"max-age=[^=]*|includeSubDomains|preload", each)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} must be max-age=SECONDS, includeSubDomains or preload")
        return value

    @field_validator("cors_allowed_origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            begins, ends = "^" in pattern or "//" in pattern, "$" in pattern or ":" in pattern
            if not (begins and ends):
                raise ValueError(f"{pattern!r} must be tied to the host by ^ or // before it, and by $ or : behind it")
            compile_regex(pattern)
        return value

    @field_validator("advertise_address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value:
            ip_address(value)
        return value
