"""Match conditions of admission webhooks (KEP-3716): a webhook is called only if all of them hold."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from apiserver_stub.admission.metrics import ConditionMetrics
from apiserver_stub.admission.policies.inputs import ExpressionInput, RequestInputs, Versioned
from apiserver_stub.admission.webhooks.calls import Phase, Question
from apiserver_stub.admission.webhooks.configurations import Webhook
from apiserver_stub.common.offload import StepRunner
from apiserver_stub.watch_cache.cache import WatchCache
from controller_manager.common.api.errors import forbidden
from controller_manager.common.base.clock import monotonic
from controller_manager.common.serving.authorization import Authorizer

_MOST_COMPILED = 1024


class Conditions:
    """Evaluates the match conditions of the webhooks of one phase; long evaluations use `run`."""

    def __init__(
        self, phase: Phase, store: WatchCache, authorizer: Authorizer, metrics: ConditionMetrics, run: StepRunner
    ) -> None:
        self._phase = phase
        self._store = store
        self._authorizer = authorizer
        self._metrics = metrics
        self._run = run

    async def match(self, webhook: Webhook, question: Question) -> bool:
        """Return whether all match conditions of a webhook hold. If they cannot be evaluated, a webhook that ignores
        failures is skipped, and others raise `Forbidden`.
        """
        return not webhook.conditions or await self._match(webhook, question)

    async def _match(self, webhook: Webhook, question: Question) -> bool:
        from apiserver_stub.admission.policies.evaluation import evaluated  # loads CEL on first use

        attributes, asked, began = question.attributes, question.attributes.kind, monotonic()
        versioned = Versioned(question.object, question.old_object, ExpressionInput(attributes, question.info))
        conditions = _compiled(webhook.conditions)
        inputs = RequestInputs(attributes, self._store, self._authorizer)
        verdict = await evaluated(inputs, versioned, None, lambda scope: scope.matches(conditions), self._run)
        refused = bool(verdict.error) and not webhook.ignores
        self._metrics.evaluated(
            "webhook",
            webhook.name,
            self._phase,
            attributes.operation.upper(),
            monotonic() - began,
            failed=bool(verdict.error),
            excluded=not verdict.holds and not refused,
        )
        if refused:
            raise forbidden(asked.group, asked.plural, attributes.name, verdict.error)
        return verdict.holds


@lru_cache(_MOST_COMPILED)
def _compiled(conditions: tuple[str, ...]) -> Sequence[Any]:
    """Return the expressions of a webhook."""
    from controller_manager.common.cel.admission import compiled, environment
    from controller_manager.common.cel.types import BOOL

    return [compiled(environment(params=False, authorizer=True), text, BOOL) for text in conditions]
