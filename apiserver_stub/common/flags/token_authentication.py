"""Flags of bootstrap tokens and of webhook token authentication."""

from controller_manager.common.options import Duration, Options, flag


class TokenAuthenticationOptions(Options):
    """Bootstrap tokens, and tokens that a webhook verifies."""

    title = "Authentication by bootstrap tokens and by a webhook"

    enable_bootstrap_token_auth: bool = flag(
        False, "Whether secrets of the type bootstrap.kubernetes.io/token in kube-system let nodes in that join."
    )
    authentication_token_webhook_config_file: str = flag(
        "", "Kubeconfig file of a server that is asked by TokenReview about tokens nobody else knows."
    )
    authentication_token_webhook_version: str = flag(
        "v1beta1", "Version of TokenReview in which that server is asked.", choices=("v1", "v1beta1")
    )
    authentication_token_webhook_cache_ttl: Duration = flag(
        "2m", "How long its answers are remembered; 0 asks each time.", minimum=0
    )
