"""The plugin ValidatingAdmissionWebhook: calls all matching webhooks concurrently."""

from collections.abc import Awaitable

from apiserver_stub.admission.chain import Attributes
from apiserver_stub.admission.matching import is_exempt
from apiserver_stub.admission.webhooks.calls import Calls, Question
from apiserver_stub.admission.webhooks.conditions import Conditions
from apiserver_stub.admission.webhooks.configurations import Webhook, WebhookIndex
from apiserver_stub.admission.webhooks.response import WebhookReview
from apiserver_stub.request.audit import note_latency
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.platform import GROUP_DOMAIN
from controller_manager.common.base.clock import monotonic
from controller_manager.common.base.tasks import all_of

NAME = "ValidatingAdmissionWebhook"
_FAILED_OPEN = f"failed-open.validating.webhook.admission.{GROUP_DOMAIN}/round_0_index_"


class ValidatingWebhooks:
    """Calls validating webhooks and rejects requests that one of them denies."""

    def __init__(self, index: WebhookIndex, calls: Calls, conditions: Conditions) -> None:
        self._index = index
        self._calls = calls
        self._conditions = conditions

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Raises the first rejection, if there are webhooks."""
        return self._validate(attributes) if self._index and not is_exempt(attributes.kind) else None

    async def _validate(self, attributes: Attributes) -> None:
        questions: dict[int, Question] = {}
        relevant: list[tuple[Webhook, Question]] = []
        for webhook, info in self._index.matching(attributes):
            question = questions.get(info.serial)
            if question is None:
                question = questions[info.serial] = await Question.of(attributes, info)
            if await self._conditions.match(webhook, question):
                relevant.append((webhook, question))
        if not relevant:
            return
        began = monotonic()
        refusals: list[ApiError] = []  # in order of arrival
        await all_of(*(self._ask(*one, number, refusals) for number, one in enumerate(relevant)))
        note_latency("validating-webhook", monotonic() - began)
        if refusals:
            raise refusals[0]

    async def _ask(self, webhook: Webhook, question: Question, number: int, refusals: list[ApiError]) -> None:
        attributes = question.attributes

        def failed_open() -> None:
            attributes.notes.annotate(f"{_FAILED_OPEN}{number}", webhook.name)

        asking: Awaitable[WebhookReview | None] = self._calls.ask(webhook, question)
        try:
            await self._calls.perform(webhook, attributes, asking, failed_open)
        except ApiError as refusal:
            refusals.append(refusal)
