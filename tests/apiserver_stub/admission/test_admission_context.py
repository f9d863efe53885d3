"""The interface that the server offers to plugins of other packages."""

from types import SimpleNamespace
from typing import Any, cast

from apiserver_stub.admission import AdmissionContext
from apiserver_stub.authz.always import AlwaysAllow
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorization, AuthorizerAttributes


class RecordingAuthorizer(AlwaysAllow):
    """Records the attributes it is called with."""

    def __init__(self) -> None:
        self.asked: list[AuthorizerAttributes] = []

    async def authorize(self, attributes: AuthorizerAttributes) -> Authorization:
        self.asked.append(attributes)
        return await super().authorize(attributes)


async def test_allows_queries_authorizer_for_the_object() -> None:
    authorizer, user = RecordingAuthorizer(), User("eve")
    parts = SimpleNamespace(runtime=Runtime("test"), store=None, configuration=None, authorizer=authorizer)
    context = AdmissionContext("Plugin", cast("Any", parts))
    assert await context.allows(user, "get", "deployments", group="apps", version="v1", namespace="ns", name="one")
    assert authorizer.asked == [AuthorizerAttributes(user, "get", "", "apps", "v1", "deployments", "", "ns", "one")]
