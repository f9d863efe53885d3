"""Flags of egress: how this server reaches others."""

from controller_manager.common.options import Options, flag


class EgressOptions(Options):
    """Connections of this server to others."""

    title = "Egress"

    egress_selector_config_file: str = flag(
        "",
        "File of an EgressSelectorConfiguration, which says through which proxies webhooks and aggregated APIs are "
        "reached; all connections are direct without it.",
    )
