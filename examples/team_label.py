"""An admission plugin that gives pods the label `team` and checks its value."""

from apiserver_stub.admission import AdmissionContext, AdmissionPlugin, Attributes, Rule


def team_label(context: AdmissionContext) -> AdmissionPlugin:
    def label(attributes: Attributes) -> None:  # changes the object in place
        attributes.tree["metadata"].setdefault("labels", {}).setdefault("team", "none")

    def judge(attributes: Attributes) -> None:  # sees the object as it will be stored; may be `async def`
        team = attributes.tree["metadata"]["labels"]["team"]
        attributes.notes.annotate("teams.example.com/team", team)  # in the audit event
        if team == "none":
            attributes.notes.warn("the pod has no team")
        elif context.get("configmaps", team, namespace="teams") is None:
            raise attributes.refused(f"there is no team {team}")  # 403; any ApiError does

    pods = (("create", "update"), ("pods",))  # "deployments.apps"; operations are create, update, delete, connect
    return AdmissionPlugin("TeamLabel", mutating=[Rule(label, *pods)], validating=[Rule(judge, *pods)])
