"""Flags of serving: ports, addresses, certificates, and bounds of time and size."""

import re
from ipaddress import ip_address
from typing import ClassVar

from pydantic import field_validator

from controller_manager.common.base.regex import Regex, compile_regex
from controller_manager.common.component.secure_serving import SecureServingOptions
from controller_manager.common.options import Duration, Quantity, StringList, flag


class ServingOptions(SecureServingOptions):
    """The serving of requests: ports, addresses, certificates, and bounds of time and size."""

    title: ClassVar[str] = "Serving"

    workers: int = flag(
        1,
        "How many processes serve requests, on one port and one store, which cannot be --storage-backend=memory. "
        "Limits on requests under way are for all together; sizes of caches, numbers of connections, and rates of the "
        "plugin EventRateLimit are for each.",
        minimum=1,
        maximum=64,
    )
    secure_port: int = flag(6443, "Port to serve HTTPS on; 0 takes a free one.", minimum=0, maximum=65535)
    cert_dir: str = flag("", "Folder of the server's own certificate authorities; the data folder when empty.")
    advertise_address: str = flag(
        "", "Address at which pods and nodes reach this server; found by the route of the host when empty."
    )
    request_timeout: Duration = flag("1m", "Longest a write may take; reads have bounds of their own.", minimum=0.001)
    min_request_timeout: int = flag(
        1800, "Seconds a watch stays open at least when the client names no time; at most twice that.", minimum=1
    )
    max_request_bytes: Quantity = flag("3Mi", "Size of the largest request body that is read.", minimum=1024)
    shutdown_delay_duration: Duration = flag(
        "0s", "How long requests are still served after a termination signal, while /readyz fails.", minimum=0
    )
    livez_grace_period: Duration = flag(
        "0s", "How long after the start /livez may succeed although the start has not completed.", minimum=0
    )

    strict_transport_security_directives: StringList = flag(
        (),
        "Directives of the Strict-Transport-Security header of all answers: max-age=SECONDS, includeSubDomains, "
        "preload. Without any, there is no such header.",
    )
    cors_allowed_origins: StringList = flag(
        (),
        "Origins of pages that browsers may let use this server: regular expressions, each tied to the whole host by ^ "
        "or // before it, and by $ or : behind it, as in //example\\.com(:|$).",
    )
    goaway_chance: float = flag(
        0.0,
        "The part of answers after which the connection is closed, so that clients behind a load balancer come to "
        "other servers from time to time; 0.02 at most.",
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
