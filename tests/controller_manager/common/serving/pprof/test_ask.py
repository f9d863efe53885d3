"""Query parameters of profiles, and masking of arguments."""

import pytest

from controller_manager.common.api.errors import BadRequest
from controller_manager.common.api.wire import Request
from controller_manager.common.serving.pprof.handler import Ask, parse_ask, shown_arguments


def ask(**query: str) -> Ask:
    return parse_ask(Request("GET", "/debug/pprof/heap", tuple(query.items())), 30)


def test_query_parameters_are_parsed() -> None:
    assert ask() == Ask(30, 0, False)
    assert ask(seconds="1", debug="2", gc="1", other="x") == Ask(1, 2, True)
    assert ask(seconds="120").seconds == 120


@pytest.mark.parametrize("seconds", ["0", "121", "-1", "1.5", "", "x", "1e1", "٣", " 1", "9" * 5000])
def test_seconds_are_bounded(seconds: str) -> None:
    with pytest.raises(BadRequest, match=r"^seconds must be a whole number from 1 to 120$"):
        ask(seconds=seconds)


@pytest.mark.parametrize(("name", "value"), [("debug", "3"), ("debug", "yes"), ("gc", "2")])
def test_other_numbers_are_bounded(name: str, value: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{name} must be a whole number from 0 to [12]$"):
        ask(**{name: value})


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("--master=https://admin:hunter2@10.0.0.1:6443", "--master=https://<masked>@10.0.0.1:6443"),
        ("--master=https://10.0.0.1:6443/a@b", "--master=https://10.0.0.1:6443/a@b"),
        ("--cloud-token=hunter2", "--cloud-token=<masked>"),
        ("--cloud_token=hunter2", "--cloud_token=<masked>"),
        ("--admin-password=hunter2", "--admin-password=<masked>"),
        ("--concurrent-serviceaccount-token-syncs=5", "--concurrent-serviceaccount-token-syncs=5"),
        ("--authentication-token-webhook-cache-ttl=1m30s", "--authentication-token-webhook-cache-ttl=1m30s"),
        ("--token-auth-file=/etc/tokens", "--token-auth-file=/etc/tokens"),
        ("--service-account-private-key-file=/etc/sa.key", "--service-account-private-key-file=/etc/sa.key"),
        ("--use-service-account-credentials=true", "--use-service-account-credentials=true"),
        ("--use-service-account-credentials", "--use-service-account-credentials"),
    ],
)
def test_secret_arguments_are_masked(argument: str, shown: str) -> None:
    assert shown_arguments(["manager", argument, "--v=4"]) == ["manager", shown, "--v=4"]


def test_secret_in_a_separate_argument_is_masked() -> None:
    assert shown_arguments(["--cloud-token", "hunter2", "rest"]) == ["--cloud-token", "<masked>", "rest"]
    assert shown_arguments(["--use-service-account-credentials", "--v=4"])[1] == "--v=4"
