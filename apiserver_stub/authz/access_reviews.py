"""The virtual resources of authorization: SubjectAccessReview and its variants, and SelfSubjectRulesReview."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from apiserver_stub.authz.reviews import Review, read
from apiserver_stub.authz.selectors import check_selectors, read_selectors
from apiserver_stub.common.error_list import ErrorList, place
from apiserver_stub.common.offload import Offload
from apiserver_stub.encode.body import run_of
from apiserver_stub.kinds.values.trees import get_in
from apiserver_stub.request.api_request import APIRequest
from controller_manager.common.api.errors import BadRequest, invalid
from controller_manager.common.api.model import Model
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.api.reviews import SubjectAccessReviewSpec
from controller_manager.common.api.tree import Tree
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import (
    NO_SELECTORS,
    Authorizer,
    AuthorizerAttributes,
    Decision,
    Selectors,
)

_GROUP = f"authorization.{GROUP_DOMAIN}"
_RESOURCE, _OTHER = "spec.resourceAttributes", "spec.nonResourceAttributes"
_OF_OTHERS = ("subjectaccessreviews", "localsubjectaccessreviews")


class _RulesSpec(Model):
    namespace: str = ""


class AccessReviews:
    """Puts the questions of callers to the authorizers; large ones are read in the thread of `offload`."""

    def __init__(self, authorizer: Authorizer, offload: Offload) -> None:
        self._authorizer = authorizer
        self._offload = offload

    def table(self) -> Mapping[tuple[str, str], Review]:
        """Return the reviews by group and plural."""
        return {
            (_GROUP, "subjectaccessreviews"): self._of_subject,
            (_GROUP, "localsubjectaccessreviews"): self._of_subject,
            (_GROUP, "selfsubjectaccessreviews"): self._of_caller,
            (_GROUP, "selfsubjectrulesreviews"): self._rules,
        }

    async def _of_subject(self, request: APIRequest, tree: Tree) -> Tree:
        run = run_of(self._offload, request)
        return await self._judge(*await run(partial(_question, request, tree)))

    async def _of_caller(self, request: APIRequest, tree: Tree) -> Tree:
        run = run_of(self._offload, request)
        return await self._judge(*await run(partial(_question, request, tree, request.user)))

    async def _rules(self, request: APIRequest, tree: Tree) -> Tree:
        namespace = read(tree, _RulesSpec).namespace
        if not namespace:
            raise BadRequest("no namespace on request")
        rules = await self._authorizer.rules_for(request.user, namespace)
        tree["spec"] = {}  # kube-apiserver does not repeat the question
        resources = [
            _shown(verbs=rule.verbs, apiGroups=rule.groups, resources=rule.resources, resourceNames=rule.names)
            for rule in rules.resource_rules
        ]
        others = [_shown(verbs=rule.verbs, nonResourceURLs=rule.paths) for rule in rules.non_resource_rules]
        status: Tree = {"resourceRules": resources, "nonResourceRules": others, "incomplete": rules.incomplete}
        return {**status, "evaluationError": rules.error} if rules.error else status

    async def _judge(self, attributes: AuthorizerAttributes, ignored: Sequence[str]) -> Tree:
        """Return the status; `ignored` are problems of the review that did not prevent a decision."""
        decision, reason, error = await self._authorizer.authorize(attributes)
        status: Tree = {"allowed": decision is Decision.ALLOW}
        if decision is Decision.DENY:
            status["denied"] = True
        if reason:
            status["reason"] = reason
        if errors := [*filter(None, [error]), *ignored]:
            status["evaluationError"] = "; ".join(errors)
        return status


def _shown(**lists: Sequence[str]) -> dict[str, Any]:
    return {name: list(values) for name, values in lists.items() if values}


def _question(request: APIRequest, tree: Tree, user: User | None = None) -> tuple[AuthorizerAttributes, Sequence[str]]:
    """Return the attributes to authorize, and the ignored selector parts; without `user`, that of the object. Raises
    `Invalid` or `BadRequest`.
    """
    spec = read(tree, SubjectAccessReviewSpec)
    errors = _problems(request, tree, spec)
    if errors.causes:
        raise invalid(request.kind.group, "", "", errors.causes)
    return _attributes(user or User(spec.user, spec.uid, spec.groups, spec.extra), spec)


def _problems(request: APIRequest, tree: Tree, spec: SubjectAccessReviewSpec) -> ErrorList:
    """Return the validation errors of an access review. A local one must be about its own namespace."""
    of, other, errors = spec.resource_attributes, spec.non_resource_attributes, ErrorList()
    path = other and {"Path": other.path, "Verb": other.verb}
    if of is not None and other is not None:
        errors.invalid(place(_OTHER), path, "cannot be specified in combination with resourceAttributes")
    if of is None and other is None:
        which = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.invalid(place(_RESOURCE), None, which)
    if request.kind.plural in _OF_OTHERS and not spec.user and not spec.groups:
        errors.invalid(place("spec.user"), "", "at least one of user or group must be specified")
    if of is not None:
        check_selectors(of, errors)
    metadata, namespaced = get_in(tree, ("metadata",)) or {}, request.kind.namespaced
    if metadata.keys() - ({"namespace"} if namespaced else ()):
        errors.invalid(place("metadata"), metadata, f"must be empty{' except for namespace' if namespaced else ''}")
    if namespaced and of is not None and of.namespace != request.namespace:
        errors.invalid(place(f"{_RESOURCE}.namespace"), of.namespace, "must match metadata.namespace")
    if namespaced and other is not None:
        errors.invalid(place(_OTHER), path, "disallowed on this kind of request")
    return errors


def _attributes(user: User, spec: SubjectAccessReviewSpec) -> tuple[AuthorizerAttributes, Sequence[str]]:
    """Return the attributes to authorize, and the ignored selector parts."""
    of, other = spec.resource_attributes, spec.non_resource_attributes
    if of is not None:
        fields, labels, ignored = read_selectors(of)
        place = of.group, of.version or "*", of.resource, of.subresource, of.namespace, of.name
        selectors = Selectors(fields, labels) if fields or labels else NO_SELECTORS
        return AuthorizerAttributes(user, of.verb, "", *place, selectors), ignored
    assert other is not None
    return AuthorizerAttributes(user, other.verb, other.path), ()
