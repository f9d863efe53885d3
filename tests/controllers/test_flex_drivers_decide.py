"""Output of FlexVolume drivers, discovery of driver programs, and their initialization."""

from pathlib import Path

import pytest

from controller_manager.common.base.programs import ProgramResult
from controllers.attach_detach.flex_call import Answer, Capabilities, DriverError, NotSupportedError, judge
from controllers.attach_detach.flex_drivers import Driver, DriverProgram, find_programs, to_initialize


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ('{"status": "Success"}', Answer("Success")),
        (' {"Status": "Success", "DEVICE": "/dev/x"}\n', Answer("Success", device="/dev/x")),
        ('{"status": "Success", "attached": true, "more": [1]}', Answer("Success", attached=True)),
        (
            '{"status": "Success", "capabilities": {"attach": false, "fsGroup": true}}',
            Answer("Success", "", "", False, Capabilities(False)),
        ),
        ('{"status": "Success", "capabilities": {"supportsMetrics": true}}', Answer("Success")),
        ('{"status": "Success", "capabilities": null, "device": null}', Answer("Success")),
    ],
)
def test_driver_output_is_parsed(output: str, answer: Answer) -> None:
    assert judge("attach", ProgramResult(0, output.encode())) == answer


@pytest.mark.parametrize(
    ("status", "output", "problem"),
    [
        (0, '{"status": "Failure", "message": "no disk"}', "attach: the driver answers Failure: no disk"),
        (1, '{"status": "Failure", "message": "no disk"}', "attach: the driver answers Failure: no disk"),
        (0, '{"status": "success"}', "attach: the driver answers success: "),
        (0, "{}", "attach: the driver answers nothing: "),
        (
            0,
            '{"status": "Failure", "message": "' + 600 * "x" + '"}',
            "attach: the driver answers Failure: " + 512 * "x",
        ),
        (2, '{"status": "Success"}', "attach: the driver reports success and ends with exit status 2"),
        (-9, "", "attach: invalid output of the driver (exit status -9)"),
        (0, "secret", "attach: invalid output of the driver (exit status 0)"),
        (0, '{"status": "Success"} secret', "attach: invalid output of the driver (exit status 0)"),
        (
            0,
            '{"status": "Success", "attached": "secret"}',
            "attach: invalid output of the driver (exit status 0)",
        ),
        (0, "[]", "attach: invalid output of the driver (exit status 0)"),
    ],
)
def test_failed_call_raises_driver_error(status: int, output: str, problem: str) -> None:
    with pytest.raises(DriverError) as caught:
        judge("attach", ProgramResult(status, output.encode()))
    assert str(caught.value) == problem


@pytest.mark.parametrize("status", [0, 1])
def test_unsupported_call_raises_not_supported_error(status: int) -> None:
    with pytest.raises(NotSupportedError):
        judge("attach", ProgramResult(status, b'{"status": "Not supported", "message": "x"}'))


def test_programs_are_found_by_driver_name(tmp_path: Path) -> None:
    made = ("vendor~disks/disks", "plain/plain", ".hidden/.hidden", "empty~x/other", "kubernetes.io~csi/csi", "file")
    for name in made:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    before = find_programs(str(tmp_path))
    assert {name: program.path for name, program in before.items()} == {
        "vendor/disks": str(tmp_path / "vendor~disks/disks"),
        "plain": str(tmp_path / "plain/plain"),
    }
    (tmp_path / "plain/plain").write_text("other")
    after = find_programs(str(tmp_path))
    assert after["plain"] != before["plain"]
    assert after["vendor/disks"] == before["vendor/disks"]


def test_driver_is_initialized_once_and_after_change_or_failure() -> None:
    drivers: dict[str, Driver] = {}
    first, second = DriverProgram("/d/d", (1,)), DriverProgram("/d/d", (2,))

    def look(now: float, *programs: DriverProgram) -> list[str]:
        return list(to_initialize(drivers, dict(zip("d", programs, strict=False)), now))

    assert look(0, first) == ["d"]
    assert look(10, first) == []  # initialization is running
    drivers["d"].failed(10)
    assert (look(10.4, first), look(10.5, first)) == ([], ["d"])
    drivers["d"].failed(11)
    assert (look(11.9, first), look(11.9, second), look(12, second)) == ([], ["d"], [])
    drivers["d"].failed(12)
    assert look(12.5, second) == ["d"]  # the backoff is reset
    for now in range(20, 40):
        drivers["d"].failed(now)
    assert drivers["d"].again == 39 + 122
    assert look(1000) == []  # the driver is removed
