"""What links an extension's halves: an assembler file with the cubin and the tables of names."""

from collections.abc import Sequence


def stub_text(kernels: Sequence[str], variables: Sequence[str]) -> str:
    """Defines `dice_this_extension` of dice_cuda.h: image, table of kernels, table of variables.

    An entry is the address of a host function or variable and its name in the device code. The cubin
    is included from `device.cubin` in the working folder.
    """
    names: list[str] = []
    lines = [
        '.section .note.GNU-stack,"",@progbits',
        ".data",
        ".balign 16",
        ".globl dice_this_extension",
        ".hidden dice_this_extension",
        "dice_this_extension:",
        ".quad dice_image, dice_kernels, dice_variables, 0",
    ]
    for label, symbols in (("dice_kernels", kernels), ("dice_variables", variables)):
        lines.append(f"{label}:")
        for symbol in symbols:
            lines.append(f".quad {symbol}, .Lname{len(names)}")
            names.append(symbol)
        lines.append(".quad 0, 0")
    lines += [".section .rodata", *(f'.Lname{i}: .asciz "{name}"' for i, name in enumerate(names))]
    lines += [".balign 16", "dice_image:"]
    lines.append('.incbin "device.cubin"' if kernels or variables else ".quad 0")
    return "\n".join(lines) + "\n"
