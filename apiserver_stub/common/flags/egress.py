"""Flags of egress: connections from this server."""

from controller_manager.common.options.flag import Options, flag


class EgressOptions(Options):
    """Connections from this server."""

    title = "Egress"

    egress_selector_config_file: str = flag(
        "",
        "File with an EgressSelectorConfiguration: the proxies for webhooks and aggregated APIs; without it all "
        "connections are direct.",
    )
