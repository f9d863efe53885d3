"""Match conditions of admission webhooks (KEP-3716)."""

from apiserver_stub.admission.webhooks.calls import Question
from apiserver_stub.admission.webhooks.configurations import Webhook


class Conditions:
    """Evaluates match conditions."""

    async def match(self, webhook: Webhook, question: Question) -> bool:
        """Return whether all conditions of a webhook hold. Raises `Forbidden`."""
        return not webhook.conditions
