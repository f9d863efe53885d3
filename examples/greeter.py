"""A controller that writes a greeting to an annotation of every pod."""

from controller_manager.framework import PODS, Context, ControllerSpec, For, Key, Options, PolicyRule, flag, main


class GreeterOptions(Options):
    """Greeter"""

    greeting: str = flag("hello", "Greeting written to the annotation of each pod.")


class Greeter:
    def __init__(self, context: Context, options: GreeterOptions) -> None:
        self._client, self._pods, self._greeting = context.client, context.informers.get(PODS), options.greeting

    async def reconcile(self, key: Key) -> None:
        pod = self._pods.get(key)
        if pod is not None and (pod.metadata.annotations or {}).get("greeting") != self._greeting:
            await self._client.patch(PODS, key, {"metadata": {"annotations": {"greeting": self._greeting}}})


RULES = (PolicyRule(groups=("",), resources=("pods",), verbs=("get", "list", "watch", "patch")),)
SPECS = (
    ControllerSpec(
        name="greeter-controller", reconciler=Greeter, options=GreeterOptions, watches=(For(PODS),), rbac=RULES
    ),
)

if __name__ == "__main__":
    main(SPECS, name="greeter")
