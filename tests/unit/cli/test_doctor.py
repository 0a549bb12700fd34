"""`dice doctor`: what it says about this machine, and what it decides when something is not there."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dice.cli import machine_report
from dice.cli.machine_report import BACKENDS, Finding, examine
from dice.cli.main import app
from dice.errors import ToolchainError
from dice.sandbox import Features


def found(findings, section=None):
    return {one.name: one for one in findings if section in (None, one.section)}


def test_the_report_is_json_and_its_exit_code_says_whether_a_backend_works():
    result = CliRunner().invoke(app, ["doctor", "--json"])
    report = json.loads(result.output)
    assert result.exit_code == (0 if report["backends"] else 1)
    names = {one["name"] for one in report["findings"]}
    assert {"simt", "cuda", "torch", "g++", "GPU", "NVRTC", "cache", "Ray"} <= names
    assert all(one["hint"] for one in report["findings"] if one["text"] == "none")


def test_nothing_heavy_is_imported():
    program = (
        "import sys\nfrom dice.cli.machine_report import examine\nexamine()\n"
        "print([name for name in ('torch', 'numpy', 'ray', 'transformers') if name in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_without_a_compiler_no_backend_works(monkeypatch):
    def nothing():
        raise ToolchainError("apt install g++")

    monkeypatch.setattr("dice.toolchain.compiler.find_compiler", nothing)
    findings = examine()
    assert found(findings)["g++"].hint == "apt install g++"
    assert {one.state for one in findings if one.section == BACKENDS} == {"broken", "missing"}
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


@pytest.mark.parametrize(("version", "state"), [("10", "broken"), ("11.4.0", "ok"), ("14", "ok")])
def test_an_old_compiler_is_told_apart(monkeypatch, version, state):
    real = machine_report._output

    def output(command):
        return version if "-dumpversion" in command else real(command)

    monkeypatch.setattr(machine_report, "_output", output)
    assert found(examine())["g++"].state == state


def test_a_gpu_is_read_from_the_drivers_tool(monkeypatch):
    shown = "0, NVIDIA H200, 143771 MiB, 580.95.05\n1, NVIDIA H200, 143771 MiB, 580.95.05\n"
    real = machine_report._output

    def output(command):
        return shown if any("query-gpu" in word for word in command) else real(command)

    monkeypatch.setattr(machine_report, "_output", output)
    gpu = found(examine())["GPU"]
    assert gpu.state == "ok"
    assert gpu.text == ("0: NVIDIA H200, 143771 MiB; 1: NVIDIA H200, 143771 MiB (driver 580.95.05)")


def test_missing_protections_say_what_their_absence_allows(monkeypatch):
    features = Features(active=("watchdog",), missing={"landlock": "can read any file"})
    monkeypatch.setattr("dice.sandbox.features", lambda: features)
    landlock = found(examine())["landlock"]
    assert (landlock.state, landlock.text) == ("missing", "missing: can read any file")
    assert "Linux 5.13" in landlock.hint


def test_a_backend_names_what_it_lacks():
    need = Finding(section="x", name="wheel", state="missing", text="none")
    assert "lacks wheel" in machine_report._backend("cuda", "judges", [need]).text
