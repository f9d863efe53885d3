"""Flags of aggregated APIs."""

from typing import ClassVar, Self

from pydantic import model_validator

from controller_manager.common.component.request_headers import RequestHeaderOptions
from controller_manager.common.options.flag import flag


class AggregationOptions(RequestHeaderOptions):
    """Aggregated APIs: how this server authenticates to extension servers as a proxy, and which proxies it trusts."""

    title: ClassVar[str] = "Aggregated APIs"

    requestheader_client_ca_file: str = flag(
        "",
        "File with the authorities of proxies that name users in headers; reloaded when it changes. Without it no"
        " proxy is trusted, and the following flags have no effect.",
    )
    proxy_client_cert_file: str = flag(
        "",
        "File with the client certificate for requests forwarded to extension servers; reloaded when it changes. "
        "Issued by the front-proxy authority of the server when empty.",
    )
    proxy_client_key_file: str = flag("", "File with the key of --proxy-client-cert-file.")
    enable_aggregator_routing: bool = flag(
        False, "Whether requests for extension servers go to an endpoint of their service instead of its cluster IP."
    )
    aggregator_reject_forwarding_redirect: bool = flag(
        True, "Whether a redirect response of an extension server is rejected with 502 instead of forwarded."
    )

    @model_validator(mode="after")
    def _come_together(self) -> Self:
        if bool(self.proxy_client_cert_file) != bool(self.proxy_client_key_file):
            raise ValueError("--proxy-client-cert-file and --proxy-client-key-file must be given together")
        return self
