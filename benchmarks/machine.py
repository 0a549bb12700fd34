"""Where a measurement was taken: commit, machine, versions, date; and the file it is written to."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def describe() -> dict[str, Any]:
    """Commit, cores, CPU model, versions and date of this run."""
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS.parent
    )
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no", "--", "../src"],
        capture_output=True,
        text=True,
        cwd=RESULTS.parent,
    )
    compiler = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True)
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        **gpu,
        "commit": commit.stdout.strip() + ("+changes" if changed.stdout.strip() else ""),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": model,
        "load_average": [round(one, 1) for one in os.getloadavg()],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gxx": compiler.stdout.strip(),
    }


def write_results(
    name: str, summary: dict[str, Any], records: list[dict[str, Any]], out: Path | None = None
) -> Path:
    """Write `results/<name>.json` (or `out`) and print where it is."""
    path = out or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"summary": summary, "machine": describe(), "records": records}
    path.write_text(json.dumps(body, indent=1) + "\n")
    print(f"written to {path}")
    return path
