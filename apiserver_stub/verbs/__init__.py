"""The API verbs, one module each, and the single function through which they write. No module names a kind: kinds are
data.
"""

from apiserver_stub.verbs.dispatch import Verbs
from apiserver_stub.verbs.scope import Features, Limits, RequestScope

__all__ = ["Features", "Limits", "RequestScope", "Verbs"]
