"""Paths of objects: a name is one path segment or refused."""

import pytest

from controller_manager.common.api.core import PODS
from controller_manager.common.api.errors import InvalidName
from controller_manager.common.api.rbac import CLUSTER_ROLES


def test_path_of_usual_name_is_unescaped() -> None:
    assert PODS.path("default", "a", "status") == "/api/v1/namespaces/default/pods/a/status"
    assert CLUSTER_ROLES.path(name="system:a b").endswith("/clusterroles/system:a b")


@pytest.mark.parametrize("name", [".", "..", "../x", "a/b", "a%2fb", "a\r\nb", "a\x7f", "a" * 5000])
def test_path_of_an_impossible_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="can't be a name"):
        PODS.path("default", name)
    with pytest.raises(InvalidName, match="can't be a name"):
        PODS.path(name, "a")
