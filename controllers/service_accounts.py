"""Creates the default service account in every namespace."""

import contextlib

from controller_manager.common.api.core import NAMESPACES, SERVICE_ACCOUNTS, ServiceAccount
from controller_manager.common.api.errors import AlreadyExists
from controller_manager.common.api.model import ObjectMeta
from controller_manager.framework import Context, ControllerSpec, For, Key, Mapped, PolicyRule, try_write

from .shared.namespaces import namespace_of, takes_content
from .shared.service_accounts import ServiceAccountOptions

NAME = "default"
_ACCOUNTS = SERVICE_ACCOUNTS.metadata_only()
_OF_THAT_NAME = f"metadata.name={NAME}"


# Observed: the namespace, its account of that name.
# Decided:                            Done:
#   namespace gone or being deleted   nothing
#   account exists                    nothing
#   otherwise                         create it


class ServiceAccountController:
    """Reconciles namespaces."""

    def __init__(self, context: Context, _: ServiceAccountOptions) -> None:
        self._client = context.client
        self._namespaces = context.informers.get(NAMESPACES)
        self._accounts = context.informers.get(_ACCOUNTS, fields=_OF_THAT_NAME)

    async def reconcile(self, key: Key) -> None:
        """Create the account in namespace `key`, if it is missing."""
        missing = self._accounts.get(Key(key.name, NAME)) is None
        if not missing or not takes_content(self._namespaces.get(key)):
            return
        account = ServiceAccount(metadata=ObjectMeta(namespace=key.name, name=NAME))
        with contextlib.suppress(AlreadyExists):
            await try_write(self._client.create(SERVICE_ACCOUNTS, account))


SPECS = (
    ControllerSpec(
        name="serviceaccount-controller",
        sharded_by=NAMESPACES,
        queue="serviceaccount",
        aliases=("serviceaccount",),
        service_account="service-account-controller",
        reconciler=ServiceAccountController,
        options=ServiceAccountOptions,
        watches=(For(NAMESPACES), Mapped(_ACCOUNTS, namespace_of, fields=_OF_THAT_NAME)),
        rbac=(
            PolicyRule(groups=("",), resources=("namespaces", "serviceaccounts"), verbs=("list", "watch")),
            PolicyRule(groups=("",), resources=("serviceaccounts",), verbs=("create",)),
        ),
    ),
)
