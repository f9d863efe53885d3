"""Flags of serving: ports, addresses, certificates, and bounds of time and size."""

from ipaddress import ip_address
from typing import ClassVar

from pydantic import field_validator

from controller_manager.component.secure_serving import SecureServingOptions
from controller_manager.options import Duration, Quantity, flag


class ServingOptions(SecureServingOptions):
    """The serving of requests: ports, addresses, certificates, and bounds of time and size."""

    title: ClassVar[str] = "Serving"

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

    @field_validator("advertise_address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value:
            ip_address(value)
        return value
