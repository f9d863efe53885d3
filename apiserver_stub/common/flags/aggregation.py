"""Flags of aggregated APIs."""

from typing import ClassVar, Self

from pydantic import model_validator

from controller_manager.common.component.request_headers import RequestHeaderOptions
from controller_manager.common.options import flag


class AggregationOptions(RequestHeaderOptions):
    """Aggregated APIs: how this server authenticates to extension servers as a proxy, and which proxies it trusts."""

    title: ClassVar[str] = "Aggregated APIs"

    requestheader_client_ca_file: str = flag(
        "",
        "File of the authorities of proxies that say in headers for whom they speak; read again when it changes. "
        "Without it no proxy is believed, and of the following flags none has an effect.",
    )
    proxy_client_cert_file: str = flag(
        "",
        "File of the certificate shown to the servers of others that requests are passed on to; read again when it "
        "changes. One of the server's own authority for proxies when empty.",
    )
    proxy_client_key_file: str = flag("", "File of the key of --proxy-client-cert-file.")
    enable_aggregator_routing: bool = flag(
        False, "Whether requests for servers of others go to an endpoint of their service instead of its cluster IP."
    )
    aggregator_reject_forwarding_redirect: bool = flag(
        True, "Whether a redirect that such a server answers is refused with 502 instead of handed on."
    )

    @model_validator(mode="after")
    def _come_together(self) -> Self:
        if bool(self.proxy_client_cert_file) != bool(self.proxy_client_key_file):
            raise ValueError("--proxy-client-cert-file and --proxy-client-key-file must be given together")
        return self
