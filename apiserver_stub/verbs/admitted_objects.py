"""Objects whose authors admission lets go on: who has changed but labels and annotations of one, without a prefix
that is reserved for Kubernetes, or left it as it is, may do so again as long as the verdict stands and nobody else
writes it.
"""

from msgspec import Struct

from apiserver_stub.admission import Admission, Attributes, StandingVerdict
from apiserver_stub.api_request import APIRequest
from apiserver_stub.audit import current_record
from apiserver_stub.verbs.query import is_dry_run
from apiserver_stub.verbs.standing import StandingFindings
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.serving.authentication import User


class Admitted(Struct):
    """Who was let pass, the revision of the object since then, and the verdict."""

    author: User
    revision: int
    verdict: StandingVerdict


class AdmittedObjects:
    """What admission said of the `most` objects that were changed so last."""

    def __init__(self, store: WatchCache, admission: Admission, most: int = 4096) -> None:
        self._admission = admission
        self._found = StandingFindings[Admitted](store, most)

    def find(self, request: APIRequest, revision: int) -> Admitted | None:
        """Return what admission says to the author of a request, whatever labels it changes of the object at a
        revision; None if it has to be asked, as it is about dry runs, and about requests that are audited or traced.
        """
        found = self._found.get(_place(request))
        if found is None or found.revision != revision or found.author != request.user:
            return None
        if request.span is not None or current_record() is not None or is_dry_run(request.query):
            return None
        return found

    def note(self, request: APIRequest, attributes: Attributes, revision: int, began: int) -> None:
        """Note that admission, asked since `began`, has let such a change pass, which made the object what it is at a
        revision.
        """
        if attributes.notes.warnings:
            return
        if (verdict := self._admission.standing(attributes)) is not None:
            self._found.put(_place(request), Admitted(request.user, revision, verdict), verdict, began)


def _place(request: APIRequest) -> tuple[int, str, str, str]:
    return request.kind.serial, request.namespace, request.name, request.subresource_name
