"""What a browser is told that may not see a page: how to come in."""

from html import escape

from controller_manager.api.errors import ApiError
from controller_manager.api.wire import Response
from controller_manager.app.pages.html import document, headers

_HTML = headers()
# Nothing of the request is in what people copy to their shells.
_COMMANDS = """kubectl create clusterrole manager-pages --verb=get --non-resource-url=/debug/controllers
kubectl -n NAMESPACE create serviceaccount reader
kubectl create clusterrolebinding manager-pages --clusterrole=manager-pages --serviceaccount=NAMESPACE:reader

kubectl -n NAMESPACE port-forward POD 10257
curl --insecure --header "Authorization: Bearer $(kubectl -n NAMESPACE create token reader)" \\
  https://localhost:10257/debug/controllers"""


def how_to_come_in(error: ApiError) -> Response:
    """The refusal of a browser, whose reader can't make much of a Status; it tells nothing that this would not."""
    body = f"""<h1>{error.code}: this page is not for everybody</h1>
<p>{escape(error.message)}</p>
<p>Ask with the token of a service account that may get this path, or with a client certificate of the cluster's
authority, which this browser can hold. Whoever may create roles gives that permission, for one path or several, and
asks:</p>
<pre>{escape(_COMMANDS)}</pre>"""
    return Response(error.code, _HTML, document(f"{error.code}", body).encode())
