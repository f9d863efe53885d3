"""Flags of bootstrap tokens and of webhook token authentication."""

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration


class TokenAuthenticationOptions(Options):
    """Bootstrap tokens, and tokens that a webhook verifies."""

    title = "Authentication by bootstrap tokens and by a webhook"

    enable_bootstrap_token_auth: bool = flag(
        False, "Whether secrets of type bootstrap.kubernetes.io/token in kube-system can be used for authentication."
    )
    authentication_token_webhook_config_file: str = flag(
        "",
        "Kubeconfig file of the webhook that verifies bearer tokens with TokenReview, after all other authenticators.",
    )
    authentication_token_webhook_version: str = flag(
        "v1beta1", "API version of the TokenReviews sent to the webhook.", choices=("v1", "v1beta1")
    )
    authentication_token_webhook_cache_ttl: Duration = flag(
        "2m", "How long responses of the webhook are cached; 0 disables caching.", minimum=0
    )
