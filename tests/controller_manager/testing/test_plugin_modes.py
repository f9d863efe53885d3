"""The plugin in projects with other pytest settings."""

import pytest

pytest_plugins = ("pytester",)

QUIET = ("-o", "asyncio_default_fixture_loop_scope=function")
VIRTUAL = """
    import asyncio, pytest

    @pytest.mark.virtual
    async def test_an_hour():
        await asyncio.sleep(3600)
        assert asyncio.get_running_loop().time() >= 3600
"""
MODULE = """
    import asyncio, pytest

    pytestmark = pytest.mark.virtual

    class TestHour:
        async def test_an_hour(self):
            await asyncio.sleep(3600)
            assert asyncio.get_running_loop().time() >= 3600
"""


@pytest.mark.parametrize("mode", ["strict", "auto"])
@pytest.mark.parametrize("module", [VIRTUAL, MODULE])
def test_virtual_marker_works_in_every_asyncio_mode(pytester: pytest.Pytester, module: str, mode: str) -> None:
    pytester.makepyfile(module)
    pytester.runpytest_inprocess(f"--asyncio-mode={mode}", "--timeout=120", *QUIET).assert_outcomes(passed=1)


def test_plugin_works_without_pytest_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_sum(): assert 1 + 1 == 2")
    pytester.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=1)


def test_virtual_marker_without_pytest_asyncio_is_a_usage_error(pytester: pytest.Pytester) -> None:
    """The same happens with a pytest-asyncio that does not use loop factories."""
    pytester.makepyfile(VIRTUAL)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "--timeout=20")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "needs pytest-asyncio 1.4 or later" in str(done.stderr)
