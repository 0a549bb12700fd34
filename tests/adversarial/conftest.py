"""The court of the CPU backend, one for each test file, with limits that keep exploits short."""

import pytest

from dice.errors import ToolchainError
from dice.sandbox import Limits
from dice.toolchain.source import BuildOptions
from dice.verify import Judge, Policy
from tests.adversarial.court import Court

LIMITS = Limits(wall_s=60.0, cpu_s=60, memory_mib=1024, disk_mib=256, threads=64)


@pytest.fixture(scope="module")
def court(request):
    """Without nvcc's opinion, which decides none of these files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dice.verify.judge.find_nvcc", lambda: None)
        yield from _court(request)


def _court(request):
    policy = Policy(call_s=3.0, import_s=4.0, limits=LIMITS)
    try:
        judge = Judge(policy, build_options=BuildOptions(timeout_s=20.0, memory_mib=1536))
    except ToolchainError as error:
        pytest.skip(str(error))
    with judge:
        court = Court(judge)
        yield court
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{request.node.name}: {court.summary()}")
