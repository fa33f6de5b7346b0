"""Make a tiny GPT-2 for runs of decoders on a CPU: ``python benchmarks/tiny_decoder.py TEXT FOLDER``.

A byte-pair vocabulary of the text, then a causal language model of it. 3,000 steps take about half an hour of
one core. One text, seed and number of threads give the same weights.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from bench.training.randomness import generator, own_random_state

END = "<|endoftext|>"
WORDS, LENGTH, BATCH = 8192, 64, 16
RATE, WARM_UP = 1e-3, 0.05
REPORT_EVERY = 100


def train_tokenizer(text: Path) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer of the text's most frequent pieces, as GPT-2's: no token is added."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(text)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, unk_token=END, model_max_length=128
    )


def pack_tokens(text: Path, tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    """Return the text's tokens in rows of LENGTH, lines separated by the end token."""
    lines = text.read_text(encoding="utf-8").splitlines()
    stream = [
        token
        for ids in tokenizer(lines, verbose=False)["input_ids"]
        for token in (*ids, tokenizer.eos_token_id)
    ]
    whole = len(stream) - len(stream) % LENGTH
    return torch.tensor(stream[:whole]).view(-1, LENGTH)


def train_decoder(rows: torch.Tensor, steps: int, seed: int) -> GPT2LMHeadModel:
    """Return a model of 4 layers and 256 dimensions after so many steps of AdamW, linearly decayed."""
    config = GPT2Config(
        vocab_size=WORDS, n_positions=128, n_embd=256, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    )
    order = generator(seed, "decoder order")
    with own_random_state(seed, "decoder"):
        model = GPT2LMHeadModel(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1)
        rising = math.ceil(WARM_UP * steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / rising, (steps - step) / max(1, steps - rising))
        )
        for step in range(1, steps + 1):
            batch = rows[torch.randint(len(rows), (BATCH,), generator=order)]
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if step % REPORT_EVERY == 0 or step == steps:
                print(f"step {step} of {steps}: loss {loss.item():.2f}", file=sys.stderr, flush=True)
    return model.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train tokenizer and model, and save them as one folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, help="one sentence a line")
    parser.add_argument("folder", type=Path, help="new folder of the model")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    tokenizer = train_tokenizer(asked.text)
    model = train_decoder(pack_tokens(asked.text, tokenizer), asked.steps, asked.seed)
    model.save_pretrained(asked.folder)
    tokenizer.save_pretrained(asked.folder)


if __name__ == "__main__":
    main()
