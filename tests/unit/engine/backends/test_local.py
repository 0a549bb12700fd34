"""Backends on this machine: tiny random models against plain loops without a cache."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dice.engine.backends import Answer, Backend, BackendSettings, Request, open_backend
from dice.engine.backends.causal import CausalBackend
from dice.engine.backends.diffusion import DiffusionBackend
from dice.engine.llm import LLM
from dice.engine.sampling import SamplingParams
from dice.errors import ModelError, UserError
from dice.models.generation import GenerationDefaults
from dice.models.load import save_model
from dice.types import Message, Prompt
from tests.unit.models.tiny import EOS, VOCABULARY, tiny_loaded, tiny_model, tiny_tokenizer

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "max_position_embeddings": 128,
    "eos_token_id": EOS,
    "bos_token_id": None,
}


def qwen() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE))


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=128,
            initializer_range=0.3,
            eos_token_id=EOS,
            bos_token_id=None,
        )
    )


def write(folder: Path, model: PreTrainedModel, *, stops: tuple[int, ...] = (EOS,)) -> str:
    model.save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": list(stops)}))
    return str(folder)


def open_tiny(folder: Path, build: Any = qwen, *, stops: tuple[int, ...] = (EOS,), **more: object):
    torch.manual_seed(0)
    name = write(folder, build(), stops=stops)
    return open_backend(BackendSettings(model=name, device="cpu", **more))


def request(index: int, length: int = 9, **params: Any) -> Request:
    generator = torch.Generator().manual_seed(index)
    ids = torch.randint(5, VOCABULARY, (length,), generator=generator).tolist()
    text = " ".join(tiny_tokenizer().convert_ids_to_tokens(ids))
    params = {"max_new_tokens": 24, "seed": index, **params}
    prompt = Prompt(problem=f"p{index}", template="nano", text=text)
    return Request(id=str(index), prompt=prompt, params=SamplingParams(**params))


def answers(backend: Backend, wanted: list[Request]) -> dict[str, Answer]:
    with contextlib.closing(backend.answers(wanted)) as stream:
        found = {one.request.id: one for one in stream}
    assert found.keys() == {one.id for one in wanted}
    return found


def plain(model: Any, prompt_ids: tuple[int, ...], most: int, stops: set[int]) -> list[int]:
    """Greedy, one whole forward a token."""
    ids = list(prompt_ids)
    with torch.inference_mode():
        while len(ids) - len(prompt_ids) < most:
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] in stops:
                break
    return ids[len(prompt_ids) :]


@pytest.mark.parametrize("build", [qwen, llama, gpt2])
def test_greedy_equals_a_plain_loop_in_a_ragged_batch(tmp_path: Path, build: Any) -> None:
    stops = tuple(range(3, 10))
    backend = open_tiny(tmp_path, build, stops=stops, rows=5)
    assert isinstance(backend, CausalBackend)
    wanted = [
        request(index, length=3 + 5 * (index % 4), max_new_tokens=2 + 4 * (index % 5))
        for index in range(12)
    ]
    found = answers(backend, wanted)
    reasons = set()
    for one in wanted:
        completion = found[one.id].completion
        assert completion is not None
        expected = plain(
            backend._model, completion.prompt_ids, one.params.max_new_tokens, set(stops)
        )
        assert list(completion.token_ids) == expected
        assert completion.forwards == len(expected)
        assert completion.steps == (0,) * len(expected)
        written = expected[:-1] if completion.finish_reason == "stop" else expected
        assert completion.text == tiny_tokenizer().decode(written, skip_special_tokens=True)
        assert found[one.id].usage.completion_tokens == len(expected)
        assert backend.pieces(completion) == tuple(
            tiny_tokenizer().batch_decode([[i] for i in expected])
        )
        reasons.add(completion.finish_reason)
    assert reasons == {"stop", "length"}


def test_sampling_depends_on_the_seed_and_not_on_the_neighbours(tmp_path: Path) -> None:
    backend = open_tiny(tmp_path, rows=6)
    law = {"temperature": 0.8, "top_p": 0.95, "top_k": 30}
    wanted = [request(index, length=4 + 3 * index, **law) for index in range(6)]
    together = answers(backend, wanted)
    for one in wanted:
        alone, other = answers(backend, [one])[one.id].completion, together[one.id].completion
        assert alone is not None
        assert other is not None
        assert alone.token_ids == other.token_ids
        assert alone.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    reseeded = answers(backend, [request(0, length=4, **{**law, "seed": 99})])["0"].completion
    assert reseeded is not None
    assert reseeded.token_ids != together["0"].completion.token_ids  # type: ignore[union-attr]


def test_logprobs_are_the_models_own_whatever_was_drawn_from(tmp_path: Path) -> None:
    backend = open_tiny(tmp_path)
    completion = answers(backend, [request(1, temperature=2.0, top_k=7)])["1"].completion
    assert completion is not None
    ids = [*completion.prompt_ids, *completion.token_ids]
    with torch.inference_mode():
        logits_TV = backend._model(torch.tensor([ids])).logits[0]
    start = len(completion.prompt_ids)
    logprobs_TV = logits_TV.log_softmax(-1)
    for index, (token_id, logprob) in enumerate(
        zip(completion.token_ids, completion.logprobs, strict=True)
    ):
        row_V = logprobs_TV[start + index - 1]
        assert logprob == pytest.approx(float(row_V[token_id]), abs=1e-4)
        assert token_id in row_V.topk(7).indices


def test_the_law_that_is_drawn_from_has_the_right_frequencies(tmp_path: Path) -> None:
    backend = open_tiny(tmp_path, rows=512)
    same = request(3)
    wanted = [
        Request(
            id=str(seed),
            prompt=same.prompt,
            params=SamplingParams(max_new_tokens=1, temperature=1.5, top_k=4, seed=seed),
        )
        for seed in range(512)
    ]
    drawn = [
        one.completion.token_ids[0] for one in answers(backend, wanted).values() if one.completion
    ]
    ids = tiny_tokenizer().encode(same.prompt.text)
    with torch.inference_mode():
        logits_V = backend._model(torch.tensor([ids])).logits[0, -1] / 1.5
    top = logits_V.topk(4)
    for token_id, share in zip(top.indices.tolist(), top.values.softmax(-1).tolist(), strict=True):
        assert drawn.count(token_id) / 512 == pytest.approx(share, abs=0.09)


def test_messages_go_through_the_chat_template_or_become_plain_text(tmp_path: Path) -> None:
    backend = open_tiny(tmp_path)
    messages = (Message(role="user", content="w1 w2"),)
    one = Request(
        id="a",
        prompt=Prompt(problem="p", template="kernelbench", messages=messages),
        params=SamplingParams(max_new_tokens=2),
    )
    assert backend.template == "kernelbench"
    ids = tiny_tokenizer().convert_tokens_to_ids
    completion = answers(backend, [one])["a"].completion
    assert completion is not None
    assert completion.prompt_ids == tuple(ids(["w1", "w2"]))
    backend._tokenizer.chat_template = "w9 {{ messages[0].content }} w8"
    completion = answers(backend, [one])["a"].completion
    assert completion is not None
    assert completion.prompt_ids == tuple(ids(["w9", "w1", "w2", "w8"]))


def test_an_overflow_is_an_answer_and_requests_are_taken_lazily(tmp_path: Path) -> None:
    save_model(
        tmp_path / "sdar", tiny_model(), tiny_tokenizer(), GenerationDefaults(eos_token_id=(EOS,))
    )
    backends = [
        open_backend(BackendSettings(model=str(tmp_path / "sdar"), device="cpu", rows=1)),
        open_tiny(tmp_path / "qwen", rows=2),
    ]
    taken = 0

    def endless() -> Iterator[Request]:
        nonlocal taken
        while True:
            taken += 1
            yield request(taken, max_new_tokens=9999 if taken == 1 else 4)

    for backend in backends:
        taken = 0
        with backend, contextlib.closing(backend.answers(endless())) as stream:
            first, second = next(stream), next(stream)
        assert taken <= 4
        assert (first.completion, first.failure) == (None, "context_overflow")
        assert "max_new_tokens" in str(first.message)
        assert second.completion is not None
        with pytest.raises(ModelError, match="closed"):
            next(backend.answers(endless()))


def test_a_causal_model_refuses_sets_of_allowed_tokens(tmp_path: Path) -> None:
    wanted = request(0, allowed_token_ids={0: frozenset({1})})
    with open_tiny(tmp_path) as backend, pytest.raises(UserError, match="allowed_token_ids"):
        list(backend.answers([wanted]))


def test_diffusion_gives_what_the_engine_gives(tmp_path: Path) -> None:
    loaded = tiny_loaded()
    save_model(tmp_path, loaded.model, loaded.tokenizer, loaded.generation)
    backend = open_backend(BackendSettings(model=str(tmp_path), device="cpu", rows=4, template="x"))
    assert isinstance(backend, DiffusionBackend)
    wanted = [request(index, temperature=1.0, length=5 + index) for index in range(6)]
    found = answers(backend, wanted)
    expected = LLM(loaded).generate([o.prompt for o in wanted], [o.params for o in wanted])
    for one, other in zip(wanted, expected, strict=True):
        completion = found[one.id].completion
        assert completion is not None
        assert completion.token_ids == other.token_ids
        assert found[one.id].usage.prompt_tokens == len(other.prompt_ids)
    assert backend.template == "x"
    assert backend.block_size == 4


def test_a_description_is_plain_and_names_the_weights(tmp_path: Path) -> None:
    backend = open_tiny(tmp_path)
    said = json.loads(json.dumps(backend.describe()))
    assert said["kind"] == "causal"
    assert (said["dtype"], said["device"], said["model_type"]) == ("float32", "cpu", "qwen3")
    assert len(said["weights_sha256"]) == 64
    nano = open_backend(BackendSettings(model="nano", device="cpu"))
    said = json.loads(json.dumps(nano.describe()))
    assert (said["kind"], said["model"], said["path"]) == ("diffusion", "nano", None)
    assert nano.template == "nano"


def test_what_cannot_be_loaded_is_refused_with_a_reason(tmp_path: Path) -> None:
    name = write(tmp_path / "a", qwen())
    with pytest.raises(UserError, match="merge"):
        open_backend(BackendSettings(model=name, adapter="x"))
    with pytest.raises(UserError, match="no such kind of device"):
        open_backend(BackendSettings(model=name, device="abacus"))
    with pytest.raises(UserError, match="base_url is for endpoints"):
        open_backend(BackendSettings(model=name, base_url="http://x"))
    with pytest.raises(UserError, match="dtype is for models on this machine"):
        open_backend(BackendSettings(model="openai:m", dtype="float32"))
    with pytest.raises(UserError, match="rows must be"):
        open_backend(BackendSettings(model=name, rows=0))
    with pytest.raises(ModelError, match="no model folder"):
        open_backend(BackendSettings(model="openai:"))
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    (tmp_path / "a" / "config.json").write_text(
        json.dumps({**config, "model_type": "mystery", "auto_map": {"AutoConfig": "x.Y"}})
    )
    with pytest.raises(ModelError, match="never run"):
        open_backend(BackendSettings(model=name, device="cpu"))
    (tmp_path / "a" / "config.json").write_text(
        json.dumps({**config, "layer_types": None, "num_hidden_layers": 3})
    )
    with pytest.raises(ModelError, match="missing keys"):
        open_backend(BackendSettings(model=name, device="cpu"))


def test_a_model_with_a_running_state_takes_one_row_at_a_time(tmp_path: Path) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    def mamba() -> PreTrainedModel:
        config = MambaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            num_hidden_layers=2,
            state_size=4,
            eos_token_id=EOS,
        )
        return MambaForCausalLM(config)

    backend = open_tiny(tmp_path, mamba, rows=4)
    wanted = [request(index, length=4 + index, max_new_tokens=6) for index in range(3)]
    for answer in answers(backend, wanted).values():
        completion = answer.completion
        assert completion is not None
        assert list(completion.token_ids) == plain(backend._model, completion.prompt_ids, 6, {EOS})
