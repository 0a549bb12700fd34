"""What a confined process needs of the machine to use an NVIDIA GPU: device files and descriptions."""

import glob
import re

READABLE = (
    "/proc/driver/nvidia",
    "/proc/devices",
    "/proc/sys/vm",
    "/proc/sys/kernel",
    "/proc/self",
    "/proc/modules",
    "/proc/filesystems",
    "/sys/bus",
    "/sys/class",
    "/sys/devices",
    "/sys/module",
    "/usr/local/nvidia",
    "/etc/nvidia",
    "/etc/OpenCL",
    "/opt/nvidia",
    "/usr/local/cuda",
)
DEVICE_PREFIX = "/dev/nvidia"


def device_files() -> tuple[str, ...]:
    """The GPU's device files, which CUDA opens for writing and controls by ioctl."""
    return tuple(sorted(glob.glob(f"{DEVICE_PREFIX}*")))


def is_device(path: str) -> bool:
    """Whether CUDA may open this path for writing."""
    return path.startswith(DEVICE_PREFIX) and ".." not in path


def is_probed(path: str) -> bool:
    """Whether CUDA tries this path while it starts and goes on where it is absent or refused."""
    probed = ("/dev/char/", "/dev/shm/cuda_injection_path_shm")
    return path == "/tmp" or path.startswith(probed)


def driver_version() -> str | None:
    """Of the loaded kernel module; None without one."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", file.read())
    except OSError:
        return None
    return found.group(1) if found else None
