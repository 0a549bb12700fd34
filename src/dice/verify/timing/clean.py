"""Clean processes of a timing: baselines and the device's ceilings, measured where no candidate has been.

`run_clean` starts one and caches its result by what it depends on: the problem, the settings, the GPU and the
versions of driver, CUDA and PyTorch. `python -m dice.verify.timing.clean DIRECTORY` is the process: it reads
`job.json` and writes `result.json`.
"""

import json
import os
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dice import sandbox
from dice.errors import SandboxError
from dice.sandbox.confine import python_roots
from dice.toolchain.cache import cache_root, digest, file_lock

PROTOCOL = 1
"""Counts up when the loop or the form of a result changes: older results are not used."""
LIMITS = sandbox.Limits(
    wall_s=600.0,
    cpu_s=1200,
    memory_mib=24 << 10,
    threads=256,
    file_size_mib=4096,
    disk_mib=4096,
    open_files=1024,
)


def run_clean(job: dict[str, Any], *, key: str, visible: str) -> dict[str, Any]:
    """The result of `job`, from the cache where it is known. `visible` is CUDA_VISIBLE_DEVICES for it.

    Raises SandboxError with the end of the process's messages when it fails.
    """
    identity = digest(key, json.dumps(job, sort_keys=True), str(PROTOCOL))
    folder = cache_root() / "timing"
    kept = folder / f"{identity}.json"
    with file_lock(folder / f"{identity}.lock"):
        if kept.is_file():
            return dict(json.loads(kept.read_text()))
        result = _measured(job, visible)
        unfinished = folder / f"{identity}.{os.getpid()}.tmp"
        unfinished.write_text(json.dumps(result))
        unfinished.replace(kept)
    return result


def _measured(job: dict[str, Any], visible: str) -> dict[str, Any]:
    package = Path(__file__).resolve().parents[3]
    with tempfile.TemporaryDirectory(prefix="dice-timing-") as directory:
        Path(directory, "job.json").write_text(json.dumps(job))
        caches = {
            name: os.path.join(directory, name.lower())
            for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
        }
        ended = sandbox.run(
            [sys.executable, "-P", "-m", "dice.verify.timing.clean", directory],
            limits=LIMITS,
            cwd=directory,
            readable=python_roots(),
            executable=[sys.prefix, sys.base_prefix, *python_roots(), "/usr/local/cuda", "/sbin"],
            environment={
                **caches,
                "PYTHONPATH": os.pathsep.join([str(package), *sys.path]),
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": visible,
                "CC": "gcc",
            },
            gpu=job["device"] == "cuda",
        )
        try:
            return dict(json.loads(Path(directory, "result.json").read_text()))
        except (OSError, ValueError) as error:
            lines = ended.stderr.strip().splitlines()[-1:] or [""]
            reason = ended.limit or ended.signal or ended.exit_code
            raise SandboxError(
                f"PyTorch could not be timed: the process ended ({reason}) {lines[0][:300]}"
            ) from error


def main(directory: str) -> int:
    """Measure what `job.json` asks for; an error ends the process with its traceback."""
    from dice.verify.timing.baseline import time_problem
    from dice.verify.timing.ceilings import measure_ceilings
    from dice.verify.timing.settings import TimingSettings

    warnings.simplefilter("ignore")
    os.chdir(directory)
    job = json.loads(Path("job.json").read_text())
    if job["do"] == "ceilings":
        result = asdict(measure_ceilings(job["device"]))
    else:
        result = time_problem(job, TimingSettings(**job["settings"]))
    Path("result.tmp").write_text(json.dumps(result))
    Path("result.tmp").replace("result.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
