"""Compile device code with NVRTC: `python -I -S nvrtc_child.py LIBRARY SOURCE CUBIN OPTION...`.

A plain file for an isolated Python without site-packages, so that it starts in 15 ms. Prints the
compiler's log; exit code 0 when CUBIN was written, 1 when the source does not compile, 3 when NVRTC
itself fails.
"""

import ctypes
import glob
import os
import sys


def main(arguments: list[str]) -> int:
    library, source, cubin, *options = arguments
    # NVRTC opens its builtins by name, which finds them once they are loaded
    for builtins in glob.glob(os.path.join(os.path.dirname(library), "libnvrtc-builtins.so*")):
        ctypes.CDLL(builtins)
    nvrtc = ctypes.CDLL(library)
    with open(source, "rb") as file:
        text = file.read()
    program = ctypes.c_void_p()
    if nvrtcfailed(
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"cuda_source", 0, None, None)
    ):
        return 3
    encoded = [one.encode() for one in options]
    array = (ctypes.c_char_p * len(encoded))(*encoded)
    outcome = nvrtc.nvrtcCompileProgram(program, len(encoded), array)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    nvrtc.nvrtcGetProgramLog(program, log)
    sys.stdout.write(log.value.decode(errors="replace"))
    if outcome != 0:
        return 1 if outcome == 6 else 3
    if nvrtcfailed(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))):
        return 3
    image = ctypes.create_string_buffer(size.value)
    if nvrtcfailed(nvrtc.nvrtcGetCUBIN(program, image)):
        return 3
    with open(cubin, "wb") as file:
        file.write(image.raw)
    return 0


def nvrtcfailed(status: int) -> bool:
    """Whether a call failed; says which status on stdout."""
    if status:
        print(f"NVRTC status {status}")
    return status != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
