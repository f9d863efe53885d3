"""How this process reaches the API server: the transport its flags describe."""

from controller_manager.app.flags import ClientOptions
from controller_manager.client import HttpTransport
from controller_manager.client.kubeconfig import from_flags


def connect(options: ClientOptions) -> HttpTransport:
    """A transport for the API server the flags name; raises ConfigError with a sentence."""
    return HttpTransport(from_flags(options.clusterconfig, options.master))
