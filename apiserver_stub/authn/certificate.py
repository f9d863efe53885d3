"""Callers known by the client certificate of their connection, whose chain the TLS layer has verified."""

from apiserver_stub.authn.chain import AUTHENTICATED
from apiserver_stub.call import User
from controller_manager.api.wire import Request


def by_certificate(request: Request) -> User | None:
    """The common name is the user, the organizations are the groups; without a common name nobody."""
    certificate = request.certificate
    if certificate is None or not certificate.common_name:
        return None
    groups = certificate.organizations
    return User(certificate.common_name, "", groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED))
