"""Decoding speed on a CPU of a model of nano's size with random weights (or of a checkpoint).

A random model is never sure of anything, so the number of tokens per forward is set by the schedule:
`--per-step 1` is one token a forward and sequence, 2 is what a trained model reaches or beats. Prints
milliseconds per forward, seconds per candidate, and the ratio to the baseline in the same run:
decoding the candidates one after the other. CPU seconds are printed beside wall seconds: where they
exceed the threads' share, the machine was busy with something else and the figures mean little.
"""

import argparse
import platform
import random
import time

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dice.engine.llm import LLM
from dice.engine.sampling import SamplingParams
from dice.models.generation import GenerationDefaults
from dice.models.load import LoadedModel, load_model
from dice.models.sdar import SdarConfig, SdarForCausalLM
from dice.types import Prompt


def random_nano(kv_heads: int) -> LoadedModel:
    words = ["<|pad|>", "<|mask|>", "<|endoftext|>", *(f"w{index}" for index in range(4093))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(0)
    config = SdarConfig(
        vocab_size=4096,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=kv_heads,
        head_dim=64,
        tie_word_embeddings=True,
        mask_token_id=1,
        eos_token_id=2,
    )
    return LoadedModel(
        name="random",
        config=config,
        model=SdarForCausalLM(config).eval(),
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<|mask|>"),
        mask_token_id=1,
        stop_token_ids=frozenset({2}),
        template="nano",
        generation=GenerationDefaults(eos_token_id=(2,)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="checkpoint folder or 'nano'; default random weights")
    parser.add_argument("--kv-heads", type=int, default=6)
    parser.add_argument("--prompt-tokens", type=int, default=300)
    parser.add_argument("--new-tokens", type=int, default=600)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--per-step", type=int, default=2, choices=(1, 2, 4))
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    loaded = load_model(options.model) if options.model else random_nano(options.kv_heads)
    rng = random.Random(0)
    text = " ".join(f"w{rng.randrange(4000)}" for _ in range(options.prompt_tokens))
    prompt = Prompt(problem="benchmark", template=loaded.template, text=text)
    params = [
        SamplingParams(
            max_new_tokens=options.new_tokens,
            denoising_steps=loaded.block_size // options.per_step,
            remasking_strategy="low_confidence_static",
            temperature=options.temperature,
            seed=seed,
        )
        for seed in range(options.candidates)
    ]
    parameters = sum(p.numel() for p in loaded.model.parameters()) / 1e6
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, ", end="")
    print(f"{options.threads} threads, {parameters:.1f}M parameters, {loaded.name}")
    llm = LLM(loaded)
    llm.generate([prompt], SamplingParams(max_new_tokens=16))
    alone_s = batched_s = 0.0
    for label, groups in (("one by one", [[p] for p in params]), ("batched", [params])):
        start, cpu_start = time.perf_counter(), time.process_time()
        completions = [c for g in groups for c in llm.generate([prompt] * len(g), g)]
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
        longest = max if label == "batched" else sum
        forwards = longest(c.forwards for c in completions)
        tokens = sum(len(c.token_ids) for c in completions)
        print(
            f"{label}: {seconds:.2f} s ({cpu_s:.2f} s CPU), {forwards} forwards, "
            f"{forwards / seconds:.1f} forwards/s, {1e3 * seconds / forwards:.2f} ms each, "
            f"{tokens} tokens, {tokens / seconds:.0f} tokens/s, "
            f"{seconds / len(completions):.2f} s per candidate"
        )
        alone_s, batched_s = batched_s, seconds
    print(f"batched / one by one: {alone_s / batched_s:.2f}x as fast")


if __name__ == "__main__":
    main()
