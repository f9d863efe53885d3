"""The virtual kinds of authentication: whose token is this, and who am I."""

from collections.abc import Mapping
from typing import Any

from apiserver_stub.api_request import APIRequest, Tree
from apiserver_stub.authn.tokens import FindToken, TokenRefused
from apiserver_stub.reviews import Review, read
from controller_manager.api.errors import BadRequest
from controller_manager.api.model import Model
from controller_manager.api.platform import GROUP_DOMAIN
from controller_manager.serving.authentication import User

_GROUP = f"authentication.{GROUP_DOMAIN}"


class _TokenSpec(Model):
    token: str = ""
    audiences: tuple[str, ...] = ()


def authentication_reviews(find: FindToken) -> Mapping[tuple[str, str], Review]:
    """Return the reviews by group and plural; `find` knows the user of a token, for this server where no audience is
    named.
    """

    async def token_review(_request: APIRequest, tree: Tree) -> Tree:
        spec = read(tree, _TokenSpec)
        if not spec.token:
            raise BadRequest("token is required for TokenReview in authentication")
        try:
            found = await find(spec.token, spec.audiences)
        except TokenRefused as refusal:
            return {"user": {}, "error": str(refusal)}
        if found is None:
            return {"user": {}, "error": "the token is not known"}
        return {"authenticated": True, "user": _user_info(found.user), "audiences": list(found.audiences)}

    return {(_GROUP, "tokenreviews"): token_review, (_GROUP, "selfsubjectreviews"): _self_subject_review}


def _user_info(user: User) -> dict[str, Any]:
    """Return a user as the API shows it."""
    extra = {name: list(values) for name, values in user.extra.items()}
    shown = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {name: value for name, value in shown.items() if value}


async def _self_subject_review(request: APIRequest, _tree: Tree) -> Tree:
    return {"userInfo": _user_info(request.user)}
