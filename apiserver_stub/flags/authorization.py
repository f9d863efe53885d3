"""Flags of authorization: what callers may do."""

from pydantic import field_validator

from controller_manager.options import Options, StringList, flag


class AuthorizationOptions(Options):
    """Authorization of callers."""

    title = "Authorization"

    authorization_mode: StringList = flag(
        ("AlwaysAllow",), "How requests of known callers are authorized; AlwaysAllow is the only mode so far."
    )

    @field_validator("authorization_mode")
    @classmethod
    def _is_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [mode for mode in value if mode != "AlwaysAllow"]
        if wrong or not value:
            raise ValueError(f"the only mode so far is AlwaysAllow, got {','.join(value)!r}")
        return value
