"""The verbs, one a file, and the one function by which they write; kinds are rows of data here, and none is named."""

from apiserver_stub.verbs.dispatch import Verbs
from apiserver_stub.verbs.scope import Features, Limits, RequestScope

__all__ = ["Features", "Limits", "RequestScope", "Verbs"]
