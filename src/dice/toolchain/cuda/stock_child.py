"""Build one extension with torch.utils.cpp_extension: `python stock_child.py WORKSPACE`.

Reads request.json, leaves built/extension.so. The built module is not imported.
"""

import json
import shutil
import sys
from pathlib import Path


def main(folder: str) -> int:
    from torch.utils import cpp_extension

    workspace = Path(folder)
    request = json.loads((workspace / "request.json").read_text())
    stock = workspace / "stock" / "build"
    stock.mkdir(parents=True)
    cpp_extension._import_module_from_library = lambda *arguments, **options: None
    cpp_extension.load_inline(  # type: ignore[no-untyped-call]
        name=request["name"],
        cpp_sources=request["cpp"],
        cuda_sources=request["cuda"] or None,
        functions=request["functions"] or None,
        extra_cuda_cflags=request["flags"],
        extra_ldflags=request["ld_flags"] or None,
        with_cuda=True,
        build_directory=str(stock),
        verbose=True,
    )
    found = sorted(stock.glob("*.so"))
    if not found:
        return 1
    shutil.copyfile(found[0], workspace / "built" / "extension.so")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
