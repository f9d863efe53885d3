"""Tokens verified by a webhook with TokenReview (KEP-1687 for audiences)."""

from collections.abc import Mapping, Sequence

import msgspec

from apiserver_stub.authn.tokens import Recognized, TokenRefused, shared
from apiserver_stub.webhooks.review_client import ReviewError, ReviewWebhook
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.serving.authentication import User


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo | None = None
    audiences: tuple[str, ...] | None = None
    error: str = ""


class WebhookTokens:
    """Calls `webhook` with a `version` of TokenReview; a response without audiences means the `implicit` ones."""

    def __init__(self, webhook: ReviewWebhook, version: str, implicit: Sequence[str]) -> None:
        self._webhook = webhook
        self._version = f"authentication.{GROUP_DOMAIN}/{version}"
        self._implicit = tuple(implicit)

    async def find(self, token: str, audiences: Sequence[str]) -> Recognized | None:
        """See `FindToken`. If the call fails or the response is invalid, the token is not accepted."""
        spec = {"token": token, "audiences": list(audiences)}
        review = {
            "kind": "TokenReview", "apiVersion": self._version, "metadata": {}, "spec": spec, "status": {"user": {}},
        }  # fmt: skip
        try:
            answer = await self._webhook.post(review)
            status = msgspec.convert(answer.get("status") or {}, _Status)
        except ReviewError as error:
            raise TokenRefused(f"the token webhook failed: {error.message}") from None
        except msgspec.ValidationError as error:
            raise TokenRefused(f"the response of the token webhook is not a TokenReview: {error}") from None
        return self._recognized(status, audiences)

    def _recognized(self, status: _Status, audiences: Sequence[str]) -> Recognized | None:
        meant = shared(audiences, status.audiences or self._implicit)
        if not meant:
            return None
        if not status.authenticated:
            if status.error:
                raise TokenRefused(status.error)
            return None
        user = status.user
        if user is None or not user.username:
            raise TokenRefused("the token webhook accepted a token without a user name")
        return Recognized(User(user.username, user.uid, user.groups or (), user.extra or {}), meant)

    async def close(self) -> None:
        """End every connection."""
        await self._webhook.close()
