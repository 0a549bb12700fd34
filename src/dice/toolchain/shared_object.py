"""Compile and link translation units into a shared object in the cache."""

import json
import logging
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from dice.errors import BuildFailure
from dice.toolchain.cache import Cache, cache_root, digest
from dice.toolchain.compiler import candidate_messages, failure, run_hostile
from dice.toolchain.prelude import Toolkit
from dice.toolchain.source import BuildOptions, CompilerMessage
from dice.toolchain.units import Unit

logger = logging.getLogger(__name__)

KIND = "extensions"
_FORMAT = "1"


class CompileFailure(BuildFailure):
    """A BuildFailure with the messages it was made from."""

    def __init__(self, text: str, messages: list[CompilerMessage]) -> None:
        super().__init__(text)
        self.messages = messages


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedObject:
    """A compiled file in the cache; `cached` when it was there already."""

    path: Path
    cached: bool


def compile_units(
    units: tuple[Unit, ...],
    kit: Toolkit,
    own_files: dict[str, str],
    options: BuildOptions,
) -> SharedObject:
    """Compile and link translation units into a cached shared object.

    `own_files` maps the file names in the units' line markers to the candidate's text. Raises
    CompileFailure; a failure with messages is cached too, unless it was a timeout.
    """
    cache = Cache(cache_root(options.cache_dir))
    key = digest(_FORMAT, kit.key, *(part for one in units for part in (one.name, one.text)))
    if not options.use_cache:
        key += f"-{uuid.uuid4().hex[:8]}"
    found = cache.find(KIND, key)
    if found is not None:
        return _cached(found)
    with cache.workspace() as workspace:
        built = workspace / "built"
        built.mkdir()
        files = []
        for unit in units:
            file = workspace / f"{unit.name}.cpp"
            file.write_text(unit.text)
            files.append(file)
        command: list[str | Path] = [kit.compiler, *kit.flags, "-Winvalid-pch"]
        command += ["-include", kit.header, "-c", *files]
        objects = [file.with_suffix(".o") for file in files]
        link: list[str | Path] = [
            kit.compiler,
            *objects,
            "-o",
            built / "extension.so",
            *kit.link_flags,
        ]
        ran = run_hostile(
            [command, link],
            cwd=workspace,
            readable=kit.readable_dirs,
            timeout_s=options.timeout_s,
            memory_mib=options.memory_mib,
        )
        if ran.returncode != 0:
            logger.debug("compiler output:\n%s", ran.output)
            messages = candidate_messages(ran.output, own_files, kit.trusted_dirs)
            problem = CompileFailure(str(failure(ran, messages, options.timeout_s)), messages)
            if not ran.timed_out and messages:
                save_failure(built, problem)
                cache.publish(built, KIND, key)
            raise problem
        path = cache.publish(built, KIND, key) / "extension.so"
        return SharedObject(path=path, cached=False)


def save_failure(folder: Path, problem: CompileFailure) -> None:
    """Make `folder` the cache entry of a source that does not compile."""
    messages = [asdict(one) for one in problem.messages]
    (folder / "failure.json").write_text(json.dumps(messages))


def raise_saved_failure(entry: Path) -> None:
    """Raise the CompileFailure that a cache entry holds, if it holds one."""
    failed = entry / "failure.json"
    if failed.exists():
        raise failed_at([CompilerMessage(**one) for one in json.loads(failed.read_text())])


def failed_at(messages: list[CompilerMessage]) -> CompileFailure:
    """The failure that these messages stand for."""
    return CompileFailure("\n".join(map(str, messages[:10])), messages)


def _cached(entry: Path) -> SharedObject:
    raise_saved_failure(entry)
    return SharedObject(path=entry / "extension.so", cached=True)
