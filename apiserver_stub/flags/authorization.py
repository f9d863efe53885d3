"""Flags of authorization: what callers may do."""

from pydantic import field_validator

from controller_manager.options import Options, StringList, flag

MODES = ("AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node")
"""The names of authorizers, as the flag takes them."""


class AuthorizationOptions(Options):
    """Authorization of callers."""

    title = "Authorization"

    authorization_mode: StringList = flag(
        (),
        "Authorizers that are asked what callers may do, in this order: the first that has an opinion decides. Of "
        f"{', '.join(MODES)}; AlwaysAllow when none is named.",
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

    @property
    def modes(self) -> tuple[str, ...]:
        """The authorizers that are asked, in order."""
        return self.authorization_mode or ("AlwaysAllow",)
