"""Hugging Face causal LMs: any checkpoint that `AutoModelForCausalLM` knows, without code of its own.

Not covered: LoRA adapters (merge them first), forced text, pickled weights, models across several GPUs.
"""

import time
from collections.abc import Generator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from dice.engine.backends.autoregression import Row, decode
from dice.engine.backends.base import CONTEXT_OVERFLOW, Answer, Request, Usage
from dice.engine.backends.local import dtype_of, groups, identity
from dice.engine.backends.options import LocalOptions
from dice.errors import ModelError, UserError
from dice.models.chat import prompt_text
from dice.models.fetch import DESCRIPTION_FILES, WEIGHT_FILES, find_folder
from dice.models.generation import load_generation_defaults
from dice.models.load import DEFAULT_TEMPLATE, check_memory, choose_device
from dice.models.weights import read_headers
from dice.types import Completion, Prompt

_ROWS = 16


class CausalBackend:
    """One checkpoint, loaded.

    Raises:
        UserError: no such device, or an adapter.
        ModelError: a checkpoint that cannot be used, or too little memory.
    """

    block_size = 1

    def __init__(self, name: str, options: LocalOptions) -> None:
        if options.adapter is not None:
            raise UserError(
                "adapters are for diffusion models; merge this one into its base with peft and name the result"
            )
        device = choose_device(options.device)
        dtype = dtype_of(options, device)
        folder = find_folder(name, (*DESCRIPTION_FILES, *WEIGHT_FILES))
        self.defaults = load_generation_defaults(folder)
        shapes = {tensor: info.shape for tensor, info in read_headers(folder).items()}
        check_memory(name, shapes, device, dtype)
        self._tokenizer, self._model = _load(folder, device, dtype)
        config = self._model.config.get_text_config()
        self._positions: int | None = getattr(config, "max_position_embeddings", None)
        self._stops = _stop_token_ids(folder, self.defaults.eos_token_id, config, self._tokenizer)
        self.name = name
        self.template = options.template or self.defaults.template or DEFAULT_TEMPLATE
        # A running state has no place for padding.
        stateful = bool(getattr(self._model, "_is_stateful", False))
        self._rows = 1 if stateful else options.rows or _ROWS
        self._description: dict[str, object] = {
            "kind": "causal",
            "model": name,
            **identity(name),
            "model_type": str(self._model.config.model_type),
            "template": self.template,
            "chat_template": bool(self._tokenizer.chat_template),
            "dtype": str(dtype).removeprefix("torch."),
            "device": str(device),
        }

    def describe(self) -> dict[str, object]:
        return dict(self._description)

    def pieces(self, completion: Completion) -> tuple[str, ...] | None:
        return tuple(str(self._tokenizer.decode([one])) for one in completion.token_ids)

    def answers(self, requests: Iterable[Request]) -> Generator[Answer, None, None]:
        if self._model is None:
            raise ModelError(f"{self.name} is closed")
        for group in groups(requests, self._rows):
            rows = []
            for index, request in enumerate(group):
                if request.params.allowed_token_ids:
                    raise UserError(
                        "a causal model takes no allowed_token_ids; use a diffusion model"
                    )
                prompt_ids = self._tokenise(request.prompt)
                length = len(prompt_ids) + request.params.max_new_tokens
                if self._positions is not None and length > self._positions:
                    message = (
                        f"{request.prompt.problem} has {len(prompt_ids)} tokens; with "
                        f"{request.params.max_new_tokens} more it exceeds the model's "
                        f"{self._positions} positions (max_new_tokens)"
                    )
                    yield Answer(request=request, failure=CONTEXT_OVERFLOW, message=message)
                else:
                    rows.append(Row(request=index, prompt_ids=prompt_ids, params=request.params))
            if not rows:
                continue
            began = time.monotonic()
            try:
                for row in decode(self._model, rows, self._stops):
                    yield self._answer(group[row.request], row, time.monotonic() - began)
            except torch.OutOfMemoryError as error:
                raise ModelError(
                    f"too little memory to write {len(rows)} sequences at a time; choose fewer (rows) or "
                    "fewer new tokens (max_new_tokens)"
                ) from error

    def _tokenise(self, prompt: Prompt) -> tuple[int, ...]:
        if prompt.forced_prefix or prompt.forced_suffix:
            raise UserError(
                f"{self.name} cannot write between forced texts ({prompt.problem}); use a diffusion model"
            )
        if prompt.messages and not self._tokenizer.chat_template:
            text = "\n\n".join(one.content for one in prompt.messages) + "\n\n"
            ids = self._tokenizer.encode(text)
        else:
            # A chat template writes its special tokens itself.
            ids = self._tokenizer.encode(
                prompt_text(self._tokenizer, prompt), add_special_tokens=not prompt.messages
            )
        if not ids:
            raise UserError(f"the prompt of {prompt.problem} is empty")
        return tuple(ids)

    def _answer(self, request: Request, row: Row, seconds: float) -> Answer:
        written = row.token_ids[:-1] if row.finish_reason == "stop" else row.token_ids
        assert row.finish_reason is not None
        completion = Completion(
            prompt_ids=row.prompt_ids,
            token_ids=tuple(row.token_ids),
            steps=(0,) * len(row.token_ids),  # every token is a block of its own
            logprobs=tuple(row.logprobs),
            text=self._tokenizer.decode(
                written, skip_special_tokens=True, clean_up_tokenization_spaces=False
            ),
            finish_reason=row.finish_reason,
            forwards=len(row.token_ids),
            seed=row.params.seed,
        )
        usage = Usage(prompt_tokens=len(row.prompt_ids), completion_tokens=len(row.token_ids))
        return Answer(request=request, completion=completion, usage=usage, seconds=seconds)

    def close(self) -> None:
        self._model = None

    def __enter__(self) -> "CausalBackend":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _load(folder: Path, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    """Tokenizer and model. Code that comes with the checkpoint is never run."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises many kinds
        raise ModelError(
            f"{folder} cannot be loaded as a causal language model: {error} (code that comes with a checkpoint "
            "is never run)"
        ) from error
    for what in ("missing_keys", "mismatched_keys"):
        if info.get(what):
            raise ModelError(
                f"{folder}: {what.replace('_', ' ')}: {sorted(map(str, info[what]))[:5]}"
            )
    return tokenizer, model.to(device).eval()


def _stop_token_ids(
    folder: Path, named: tuple[int, ...], config: Any, tokenizer: Any
) -> frozenset[int]:
    ids = list(named)
    if not ids:
        eos = config.eos_token_id if config.eos_token_id is not None else tokenizer.eos_token_id
        ids = eos if isinstance(eos, list) else [eos]
    if None in ids:
        raise ModelError(
            f"{folder} names no stop token: set eos_token_id in generation_config.json"
        )
    return frozenset(ids)
