"""What can be done with resources, one verb a file; kinds are rows of data here, and none is named."""

from apiserver_stub.verbs.answer import Verbs
from apiserver_stub.verbs.tools import Limits

__all__ = ["Limits", "Verbs"]
