"""The authorizers of the modes AlwaysAllow and AlwaysDeny, which only check whether the user is authenticated."""

from controller_manager.common.serving.authentication import ANONYMOUS, UNAUTHENTICATED, User
from controller_manager.common.serving.authorization import (
    ALL_RULES,
    ALLOWED,
    NO_OPINION,
    NO_RULES,
    Authorization,
    AuthorizerAttributes,
    Decision,
    NonResourceRule,
    Rules,
)

PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
"""The paths that all users may read, like the role `system:public-info-viewer`."""

_PUBLIC_RULES = Rules((), (NonResourceRule(("get",), tuple(sorted(PUBLIC))),))


class AlwaysAllow:
    """Allows all requests of authenticated users; anonymous users may read public paths."""

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return ALLOW or NO_OPINION."""
        if _is_known(attributes.user):
            return ALLOWED
        is_public = attributes.verb == "get" and not attributes.resource and attributes.path in PUBLIC
        return ALLOWED if is_public else NO_OPINION

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return all permissions, or those of public paths."""
        return ALL_RULES if _is_known(user) else _PUBLIC_RULES


class AlwaysDeny:
    """Allows nothing."""

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        """Return NO_OPINION with a reason; later authorizers may allow the request."""
        return _FORBIDDEN

    async def rules_for(self, user: User, namespace: str) -> Rules:
        """Return no permissions."""
        return NO_RULES


_FORBIDDEN = Authorization(Decision.NO_OPINION, "Everything is forbidden.")


def _is_known(user: User) -> bool:
    return user.name != ANONYMOUS and UNAUTHENTICATED not in user.groups
