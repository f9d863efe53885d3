"""Token and access reviews, which a process sends to the API server to authenticate and authorize its callers."""

from collections.abc import Mapping

from controller_manager.common.api.model import Model, Object
from controller_manager.common.api.resource import Resource


class UserInfo(Model):
    """The user of a token."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class TokenReviewSpec(Model):
    """The token to review."""

    token: str = ""


class TokenReviewStatus(Model):
    """The result; `error` says why a token could not be reviewed."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    error: str = ""


class TokenReview(Object):
    """A review of a token (`authentication.k8s.io/v1`)."""

    spec: TokenReviewSpec = TokenReviewSpec()
    status: TokenReviewStatus = TokenReviewStatus()


class NonResourceAttributes(Model):
    """A non-resource path, and the HTTP method in lower case."""

    path: str = ""
    verb: str = ""


class SelectorRequirement(Model):
    """A selector requirement; `operator` is `In`, `NotIn`, `Exists`, `DoesNotExist` or a future one."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class SelectorAttributes(Model):
    """A selector that narrows a review: as text, or as requirements instead."""

    raw_selector: str = ""
    requirements: tuple[SelectorRequirement, ...] = ()


class ResourceAttributes(Model):
    """A verb on a resource or subresource; an empty name means all."""

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
    """A user, and the access to a resource or path to review."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class SubjectAccessReviewStatus(Model):
    """The result; a denial takes precedence over an approval."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""


class SubjectAccessReview(Object):
    """A review of a user's access (`authorization.k8s.io/v1`)."""

    spec: SubjectAccessReviewSpec = SubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, TokenReview)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, SubjectAccessReview
)
