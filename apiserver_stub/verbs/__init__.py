"""What can be done with resources, one verb a file; kinds are rows of data here, and none is named."""

from apiserver_stub.verbs.answer import Verbs
from apiserver_stub.verbs.tools import Features, Limits, Tools

__all__ = ["Features", "Limits", "Tools", "Verbs"]
