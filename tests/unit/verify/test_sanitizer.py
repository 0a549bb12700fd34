"""What compute-sanitizer prints becomes evidence."""

from dice.verify.sanitizer import parse
from dice.verify.sanitizer_child import Script

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale_kernel(const float *, float *, int)+0x90
=========     by thread (96,0,0) in block (1,0,0)
=========     Access to 0x7f2c0a000400 is out of bounds
========= Invalid __global__ write of size 4 bytes
=========     at scale_kernel(const float *, float *, int)+0x90
=========     by thread (97,0,0) in block (1,0,0)
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_kernel(float *)+0x50
=========     and Read access at sum_kernel(float *)+0x70 [124 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_memory_errors_name_kernel_block_and_thread_once():
    found = parse(MEMCHECK, "memcheck")
    assert [one.kind for one in found] == ["out_of_bounds"]
    assert "thread (96,0,0) of block (1,0,0)" in found[0].message
    assert "scale_kernel" in found[0].message


def test_races_are_races():
    assert [one.kind for one in parse(RACECHECK, "racecheck")] == ["race"]


def test_a_clean_report_is_no_evidence():
    assert (
        parse("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", "memcheck") == []
    )


def test_script_answers_builds_in_order_then_calls_once():
    script = Script({"job": {"code": "x"}, "builds": [{"path": "a"}, {"path": "b"}]})
    assert script.receive() == {"code": "x"}
    for path in ("a", "b"):
        script.send({"stage": "build"})
        assert script.receive() == {"path": path}
    script.send({"stage": "ready"})
    assert script.receive()["do"] == "call"
    script.send({"stage": "called"})
    assert script.receive() is None
