"""Flags of authorization: what callers may do."""

from typing import Self

from pydantic import field_validator, model_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration, StringList

MODES = ("AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node")
"""The names of authorizers, as the flag takes them."""
_INSTEAD = frozenset(
    {
        "authorization_mode",
        "authorization_webhook_config_file",
        "authorization_webhook_version",
        "authorization_webhook_cache_authorized_ttl",
        "authorization_webhook_cache_unauthorized_ttl",
    }
)


class AuthorizationOptions(Options):
    """Authorization of callers."""

    title = "Authorization"

    authorization_mode: StringList = flag(
        (),
        "Authorizers that are asked what callers may do, in this order: the first that has an opinion decides. Of "
        f"{', '.join(MODES)}; AlwaysAllow when none is named.",
    )

    authorization_config: str = flag(
        "",
        "File with an AuthorizationConfiguration, used instead of --authorization-mode and "
        "--authorization-webhook-*; reloaded when it changes.",
    )
    authorization_policy_file: str = flag("", "File with ABAC policies, one JSON object per line; for the mode ABAC.")
    authorization_webhook_config_file: str = flag(
        "", "Kubeconfig file of the authorization webhook; for the mode Webhook."
    )
    authorization_webhook_version: str = flag(
        "v1beta1", "API version of the SubjectAccessReviews sent to the webhook.", choices=("v1", "v1beta1")
    )
    authorization_webhook_cache_authorized_ttl: Duration = flag(
        "5m", "How long allowed responses of the webhook are cached; 0 disables caching.", minimum=0
    )
    authorization_webhook_cache_unauthorized_ttl: Duration = flag(
        "30s", "How long other responses of the webhook are cached; 0 disables caching.", minimum=0
    )

    @field_validator("authorization_mode")
    @classmethod
    def _are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for mode in value:
            if mode not in MODES:
                raise ValueError(f"{mode!r} is not a valid mode, which are {', '.join(MODES)}")
        if len(set(value)) < len(value):
            raise ValueError(f"{','.join(value)!r} names a mode more than once")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.authorization_config:
            others = sorted(self.model_fields_set & _INSTEAD)
            if others:
                named = ", ".join(f"--{name.replace('_', '-')}" for name in others)
                raise ValueError(f"--authorization-config stands for {named}, which must not be given beside it")
            return self
        for mode, file in (("ABAC", "authorization_policy_file"), ("Webhook", "authorization_webhook_config_file")):
            name = f"--{file.replace('_', '-')}"
            if mode in self.modes and not getattr(self, file):
                raise ValueError(f"--authorization-mode {mode} needs {name}")
            if getattr(self, file) and mode not in self.modes:
                raise ValueError(f"{name} needs --authorization-mode {mode}")
        return self

    @property
    def modes(self) -> tuple[str, ...]:
        """The authorization modes in order of evaluation."""
        return self.authorization_mode or ("AlwaysAllow",)
