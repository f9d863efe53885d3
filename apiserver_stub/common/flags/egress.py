"""Flags of egress: connections from this server."""

from controller_manager.common.options import Options, flag


class EgressOptions(Options):
    """Connections from this server."""

    title = "Egress"

    egress_selector_config_file: str = flag(
        "",
        "File of an EgressSelectorConfiguration, which says through which proxies webhooks and aggregated APIs are "
        "reached; all connections are direct without it.",
    )
