"""The candidate's process: imports it, constructs it, runs it on one input after another.

Runs confined (see `dice.sandbox`). It holds the candidate, the weights and the inputs of the current
and earlier calls; never the reference, an expected output, a later input or the ruling. What it reports
is used against the candidate, not for it, with one exception: the count of launches.
"""

import contextlib
import hashlib
import linecache
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import torch

from dice.errors import BuildFailure
from dice.sandbox.wire import Channel, Message
from dice.toolchain import intercept
from dice.toolchain.simt import runtime as simt_runtime
from dice.toolchain.source import BuildOptions
from dice.verify import trees
from dice.verify.candidate_thread import Builds, CandidateThread, follow_threads
from dice.verify.optrace import OpTrace
from dice.verify.watch import Seal, watch

CANDIDATE_FILE = "candidate.py"

# taken before a candidate can replace them
_no_grad = torch.no_grad
_hash = hashlib.blake2b
_map, _save, _load, _tensors = trees.map_tensors, trees.save, trees.load, trees.tensors
_uint8, _equal = torch.uint8, torch.equal
_trace, _nothing = OpTrace, contextlib.nullcontext


class Conversation(Protocol):
    """The worker's end of the channel to the judge."""

    def send(self, message: Message) -> None:
        """Send one message."""

    def receive(self) -> Message | None:
        """The next message; None once the judge has gone."""


class _Stop(Exception):
    """The candidate failed; `report` says how."""

    def __init__(self, report: Message) -> None:
        super().__init__(report["stage"])
        self.report = report


def main(channel: Channel) -> int:
    """Entry of the process: a candidate, then calls until the judge is satisfied."""
    return serve(channel, Worker)


def serve(channel: Conversation, worker_class: "type[Worker]") -> int:
    """Construct one candidate in this process and answer the judge's requests about it."""
    job = channel.receive()
    if job is None:
        return 1
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    worker = worker_class(channel, job)
    try:
        channel.send(worker.construct())
        while (request := channel.receive()) is not None:
            channel.send(worker.handle(request))
    except _Stop as stop:
        channel.send({**stop.report, "diagnostics": worker.diagnostics()})
        channel.receive()
    return 0


class Worker:
    """State of one candidate between calls; on the CPU's emulator. Subclasses replace the backend."""

    kept_bytes = 1 << 30
    """Of PyTorch's results that are kept while kernels are switched off."""

    def __init__(self, channel: Conversation, job: Message) -> None:
        self._channel, self._job = channel, job
        self._nonce = job["nonce"]
        self._check = bool(job.get("check"))
        self._trace = not job.get("timing")
        self._recorder: list[OpTrace] = []
        """The current call's; shared with the threads that the candidate starts."""
        self._earlier: list[tuple[int, list[torch.Tensor], list[str]]] = []
        self._thread = CandidateThread()
        self._ask_for_build = Builds(self._thread, check=self._check).ask
        self.open_backend()
        follow_threads(_recorders(self._recorder))
        self._seal = Seal()
        send, alarm = channel.send, {"stage": "incident", "nonce": self._nonce}
        watch(lambda what: send({**alarm, "message": what}))

    # -- the backend -----------------------------------------------------------------------------

    def open_backend(self) -> None:
        """Make kernels runnable in this process, before the candidate is imported."""
        self._runtime = simt_runtime.Runtime(self._job["runtime"])
        self._runtime.set_check(self._check)
        self._runtime.set_threads(self._job["threads"])
        self._runtime.set_skip_launches(bool(self._job.get("skip_launches")))
        if self._job["step_limit"]:
            self._runtime.set_step_limit(self._job["step_limit"])
        intercept.install(BuildOptions(check=self._check), build=self._ask_for_build)
        # every function of the library is looked up now: `watch` reports a later look-up
        self.launch_count()
        self.diagnostics()
        self._runtime.clear()

    def skip_launches(self) -> None:
        """From here on launches do nothing."""
        self._runtime.set_skip_launches(True)

    def launch_count(self) -> int:
        """Kernel launches since the process started."""
        return self._runtime.launch_count()

    def load_inputs(self, path: str) -> Any:
        """The arguments of one call, on the backend's device, with the strides they were made with."""
        return trees.with_strides(_load(path), path)

    def before_call(self, seed: int) -> None:
        """Right before the candidate's forward."""
        self._runtime.clear()
        torch.manual_seed(seed)

    def after_call(self) -> None:
        """Right after it: wait for whatever it left running."""

    @staticmethod
    def place(model: torch.nn.Module) -> torch.nn.Module:
        """The model on the backend's device."""
        return model

    def remember(self, inputs: Any) -> Any:
        """What tells later whether the inputs changed."""
        return [self.digest(tensor) for tensor in _tensors(inputs)]

    def unchanged(self, inputs: Any, remembered: Any) -> bool:
        """Whether the inputs are what they were."""
        return bool(self.remember(inputs) == remembered)

    def digest(self, tensor: torch.Tensor) -> str:
        """Changes when a value of the tensor does."""
        flat = tensor.detach().contiguous().reshape(-1)
        if not flat.numel():
            return ""
        return _hash(flat.view(_uint8).numpy().data, digest_size=16).hexdigest()

    def diagnostics(self) -> list[Message]:
        """Faults that the backend saw during the last call."""
        return [
            {
                "kind": one.kind,
                "message": one.message,
                "kernel": one.kernel,
                "thread_block": list(one.thread_block or ()),
                "thread": list(one.thread or ()),
                "array": one.array,
            }
            for one in self._runtime.diagnostics()
        ]

    # -- one candidate ---------------------------------------------------------------------------

    def construct(self) -> Message:
        job = self._job
        namespace = self._import(job["code"])
        model_class = namespace.get("ModelNew")
        if not isinstance(model_class, type) or not issubclass(model_class, torch.nn.Module):
            raise _Stop(
                self._report("import", "no_model_new", "defines no class ModelNew(nn.Module)")
            )
        init = _load("init.bin")
        torch.manual_seed(job["construction_seed"])
        self._model = self._run("construct", _construct, model_class, init, self.place)
        return {**self._report("ready", "", ""), **self._load_state("state.bin")}

    def _import(self, code: str) -> dict[str, Any]:
        module = types.ModuleType("candidate")
        module.__file__ = CANDIDATE_FILE
        try:
            compiled = compile(code, CANDIDATE_FILE, "exec")
        except (SyntaxError, ValueError) as error:
            raise _Stop(self._report("import", "syntax_error", _describe(error))) from error
        # inspect.getsource and pickling look the module up
        sys.modules["candidate"] = module
        linecache.cache[CANDIDATE_FILE] = (len(code), None, code.splitlines(True), CANDIDATE_FILE)
        self._run("import", exec, compiled, module.__dict__)
        return module.__dict__

    def _run(self, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run candidate code in its own thread, serving its builds; its exception ends the trial."""
        self._thread.start(function, arguments)
        while True:
            kind, value = self._thread.results.get()
            self._check_seal()
            if kind == "build":
                self._channel.send(value)
                self._thread.answers.put(self._channel.receive())
            elif kind == "failed":
                self._fail(stage, value)
            else:
                return value

    def _check_seal(self) -> None:
        broken = self._seal.broken()
        if broken:
            text = f"replaces {', '.join(broken[:5])}"
            raise _Stop(self._report("sealed", "tampering", text))

    def _load_state(self, path: str) -> Message:
        """Copy the reference's state by name and shape; say what found no counterpart."""
        found = self._run("construct", _copy_state, self._model, _load(path))
        return dict(zip(("unmatched", "differing", "own_only"), found, strict=True))

    def handle(self, request: Message) -> Message:
        if request["do"] == "blind":
            self._job["skip_launches"] = True
            self.skip_launches()
            return {**self._report("blind", "", ""), **self._load_state(request["path"])}
        if request["do"] == "state":
            return {**self._report("state", "", ""), **self._load_state(request["path"])}
        index, path = request["index"], request["input"]
        inputs = self.load_inputs(path)
        before = self.remember(inputs)
        launches = self.launch_count()
        self.before_call(request["seed"])
        trace = _trace(self.kept_bytes if self._job.get("skip_launches") else 0)
        self._recorder[:] = [trace] if self._trace else []
        output = self._run("call", _forward, self._model, inputs, _recorders(self._recorder)())
        try:
            self.after_call()
        except BaseException as error:
            self._fail("call", error)
        report = self._report("called", "", "")
        report["index"] = index
        report["launches"] = self.launch_count() - launches
        report["diagnostics"] = self.diagnostics()
        report["operators"] = sorted(trace.ops)
        report["mutated"] = not self.unchanged(inputs, before)
        storages = {tensor.untyped_storage().data_ptr() for tensor in _tensors(inputs)}
        outputs = self._run("call", _saved, output, request["output"])
        report["returns_input"] = any(
            tensor.untyped_storage().data_ptr() in storages for tensor in outputs
        )
        if self._job.get("skip_launches"):
            self._run("call", _save_guesses, trace, output, index)
        report["changed_earlier"] = [
            earlier for earlier, kept, digests in self._earlier if self._digests(kept) != digests
        ]
        self._earlier.append((index, outputs, self._digests(outputs)))
        report["earlier_storage"] = self._reused_storage()
        return report

    def _reused_storage(self) -> bool:
        """Whether the newest output lives where a still-held earlier one does."""
        *earlier, newest = self._earlier
        pointers = {t.untyped_storage().data_ptr() for t in newest[1] if t.numel()}
        return any(
            tensor.untyped_storage().data_ptr() in pointers
            for _, kept, _ in earlier
            for tensor in kept
        )

    def _digests(self, values: list[torch.Tensor]) -> list[str]:
        return [self.digest(value) for value in values]

    def _report(self, stage: str, problem: str, message: str) -> Message:
        return {"stage": stage, "problem": problem, "message": message, "nonce": self._nonce}

    def _fail(self, stage: str, error: BaseException) -> NoReturn:
        chain: BaseException | None = error
        problem = "exception"
        while chain is not None:
            if isinstance(chain, BuildFailure):
                problem = "build_failure"
            elif isinstance(chain, MemoryError):
                problem = "out_of_memory"
            chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
        text = _describe(error)
        if "can't allocate memory" in text or "bad_alloc" in text:
            problem = "out_of_memory"
        if isinstance(error, SystemExit):
            problem = "exit"
        raise _Stop(self._report(stage, problem, text)) from error


def _recorders(current: list[OpTrace]) -> Callable[[], Any]:
    """Makes the context in which a thread of the candidate runs."""
    return lambda: current[0].twin() if current else _nothing()


def _construct(
    model_class: type, init: list[Any], place: Callable[[torch.nn.Module], torch.nn.Module]
) -> torch.nn.Module:
    return place(model_class(*init))


def _forward(model: torch.nn.Module, inputs: list[Any], recorder: Any) -> Any:
    with _no_grad(), recorder:
        return model(*inputs)


def _saved(output: Any, path: str) -> list[torch.Tensor]:
    """Write an output; its plain tensors."""
    _save(output, path)
    return [value for value in _tensors(output) if type(value) is torch.Tensor]


def _save_guesses(trace: OpTrace, output: Any, index: int) -> None:
    for k, guess in enumerate(trace.guesses(output)):
        _save(guess, f"made_{index}_{k}.bin")


def _copy_state(model: torch.nn.Module, reference: dict[str, torch.Tensor]) -> list[list[str]]:
    """Names of the reference's tensors without a counterpart, those of them that differ, own ones."""
    own = dict(model.state_dict(keep_vars=True))
    unmatched, free = [], dict(own)
    with _no_grad():
        for name, value in reference.items():
            target = own.get(name)
            if isinstance(target, torch.Tensor) and target.shape == value.shape:
                target.data.copy_(value.to(target.dtype))
                free.pop(name, None)
            else:
                unmatched.append(name)
    differing = []
    for name in unmatched:
        twins = [key for key, other in free.items() if _same(other, reference[name])]
        if twins:
            free.pop(twins[0])
        else:
            differing.append(name)
    return [unmatched, differing, sorted(free)]


def _same(own: Any, value: torch.Tensor) -> bool:
    return (
        isinstance(own, torch.Tensor)
        and own.shape == value.shape
        and own.dtype == value.dtype
        and _equal(own.detach().cpu(), value)
    )


def _describe(error: BaseException) -> str:
    """The message and the candidate's own line."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} (line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == CANDIDATE_FILE]
    where = f" (line {lines[-1]})" if lines else ""
    name = "" if isinstance(error, BuildFailure) else f"{type(error).__name__}: "
    return f"{name}{str(error)[:3000]}{where}"
