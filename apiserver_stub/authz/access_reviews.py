"""The virtual kinds of authorization: may somebody, may I, and what may I do at all."""

from collections.abc import Iterator, Mapping, Sequence

from apiserver_stub.authz.authorizer import AuthorizerChain, Decision
from apiserver_stub.call import APIRequest, Tree, User
from apiserver_stub.kinds.trees import get_in
from apiserver_stub.parse import RequestInfo
from apiserver_stub.reviews import Review, read
from controller_manager.api.errors import BadRequest, Cause, invalid
from controller_manager.api.model import Model
from controller_manager.api.platform import GROUP_DOMAIN

_GROUP = f"authorization.{GROUP_DOMAIN}"


class _ResourceAttributes(Model):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _OtherAttributes(Model):
    path: str = ""
    verb: str = ""


class _Spec(Model):
    resource_attributes: _ResourceAttributes | None = None
    non_resource_attributes: _OtherAttributes | None = None
    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _RulesSpec(Model):
    namespace: str = ""


class AccessReviews:
    """Asks the chain of authorizers the questions callers have."""

    def __init__(self, may: AuthorizerChain) -> None:
        self._may = may

    def table(self) -> Mapping[tuple[str, str], Review]:
        """The reviews by group and plural."""
        return {
            (_GROUP, "subjectaccessreviews"): self._of_subject,
            (_GROUP, "localsubjectaccessreviews"): self._of_subject,
            (_GROUP, "selfsubjectaccessreviews"): self._of_caller,
            (_GROUP, "selfsubjectrulesreviews"): self._rules,
        }

    def _of_subject(self, call: APIRequest, tree: Tree) -> Tree:
        spec = read(tree, _Spec)
        causes = list(_problems(call, tree, spec))
        if not spec.user and not spec.groups:
            causes.append(_wrong("spec.user", "at least one of user or group must be specified"))
        _refuse(call, causes)
        user = User(spec.user, spec.uid, spec.groups, spec.extra)
        return self._judge(user, _route(spec))

    def _of_caller(self, call: APIRequest, tree: Tree) -> Tree:
        spec = read(tree, _Spec)
        _refuse(call, list(_problems(call, tree, spec)))
        return self._judge(call.user, _route(spec))

    def _rules(self, call: APIRequest, tree: Tree) -> Tree:
        if not read(tree, _RulesSpec).namespace:
            raise BadRequest("no namespace on request")
        everything = RequestInfo("*", "*", "*", "*", "*", "*", "*", "*")
        if self._may.authorize(call.user, everything).decision is not Decision.ALLOW:
            return {"resourceRules": [], "nonResourceRules": [], "incomplete": True}
        return {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }

    def _judge(self, user: User, route: RequestInfo) -> Tree:
        verdict = self._may.authorize(user, route)
        status: Tree = {"allowed": verdict.decision is Decision.ALLOW}
        if verdict.decision is Decision.DENY:
            status["denied"] = True
        if verdict.reason:
            status["reason"] = verdict.reason
        return status


def _problems(call: APIRequest, tree: Tree, spec: _Spec) -> Iterator[Cause]:
    """What is wrong with a question about access; one in a namespace is about the resources in it."""
    of, other = spec.resource_attributes, spec.non_resource_attributes
    if of is not None and other is not None:
        yield _wrong("spec.nonResourceAttributes", "cannot be specified in combination with resourceAttributes")
    if of is None and other is None:
        which = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield _wrong("spec.resourceAttributes", which)
    if (get_in(tree, ("metadata",)) or {}).keys() - ({"namespace"} if call.kind.namespaced else ()):
        yield _wrong("metadata", "must be empty, but for the namespace of a question in one")
    if not call.kind.namespaced:
        return
    if of is not None and of.namespace != call.namespace:
        yield _wrong("spec.resourceAttributes.namespace", "must match metadata.namespace")
    if other is not None:
        yield _wrong("spec.nonResourceAttributes", "disallowed on this kind of request")


def _route(spec: _Spec) -> RequestInfo:
    of, other = spec.resource_attributes, spec.non_resource_attributes
    if of is not None:
        return RequestInfo(of.verb, "", of.group, of.version, of.resource, of.subresource, of.namespace, of.name)
    assert other is not None
    return RequestInfo(other.verb, other.path)


def _wrong(field: str, message: str) -> Cause:
    return Cause(reason="FieldValueInvalid", message=message, field=field)


def _refuse(call: APIRequest, causes: Sequence[Cause]) -> None:
    if causes:
        raise invalid(call.kind.group, call.kind.kind, "", causes)
