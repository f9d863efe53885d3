"""The questions a process puts to the API server about its own callers: whose token is this, and may they do that."""

from collections.abc import Mapping

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.resource import Resource


class UserInfo(Model):
    """The user that a token belongs to."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class TokenReviewSpec(Model):
    """The token in question."""

    token: str = ""


class TokenReviewStatus(Model):
    """The answer; `error` says why a token could not be judged."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    error: str = ""


class TokenReview(Object):
    """A question for the owner of a token (`authentication.k8s.io/v1`)."""

    spec: TokenReviewSpec = TokenReviewSpec()
    status: TokenReviewStatus = TokenReviewStatus()


class NonResourceAttributes(Model):
    """A path outside the resources, and the method in lower case."""

    path: str = ""
    verb: str = ""


class SelectorRequirement(Model):
    """One condition of a selector; `operator` is `In`, `NotIn`, `Exists`, `DoesNotExist` or one to come."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class SelectorAttributes(Model):
    """A selector that narrows a question: as text or, in place of it, as requirements."""

    raw_selector: str = ""
    requirements: tuple[SelectorRequirement, ...] = ()


class ResourceAttributes(Model):
    """A verb on a resource, or on a subresource of it; no name stands for all."""

    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_selector: SelectorAttributes | None = None
    label_selector: SelectorAttributes | None = None


class SubjectAccessReviewSpec(Model):
    """A user, and the access to a resource or to a path that is asked about."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class SubjectAccessReviewStatus(Model):
    """The answer; one that denies counts more than one that allows."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""


class SubjectAccessReview(Object):
    """May a subject do that (`authorization.k8s.io/v1`)."""

    spec: SubjectAccessReviewSpec = SubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, TokenReview)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, SubjectAccessReview
)
