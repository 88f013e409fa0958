#!/usr/bin/env python3
"""The showcase's training loop, alone and in a run: bench/showcase.py starts it.

    loop.py base TEXT OUT         trains a model on a text and saves it as Hugging Face does
    loop.py initial BASE OUT      what servers begin with: model.json and weights.bin
    loop.py tune BASE TEXT OUT    fine-tunes it on a text of one's own, by itself
    loop.py join BASE TEXT OUT    the same in a run (LONGHAUL_SOCKET), until its budget is met
    loop.py judge MODEL... --texts TEXT...    parameters, and nats a byte of each text, a line each

With --lora a base stays as it is, and adapters of PEFT are trained. Tokens are bytes. A pass draws
every piece of the text once, in an order of its own.
"""
import argparse
import os

import peft
import torch
from transformers import AutoModelForCausalLM, LlamaConfig


def read(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def load(given):
    torch.manual_seed(given.seed)  # equal adapters everywhere
    model = AutoModelForCausalLM.from_pretrained(given.base, dtype=torch.float32)
    if not given.lora:
        return model
    return peft.get_peft_model(model, peft.LoraConfig(
        r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))


def batches(given, text):
    """Without an end: passes over all pieces of the text."""
    generator = torch.Generator().manual_seed(given.seed)
    while True:
        shift = int(torch.randint(given.length, (1,), generator=generator))
        pieces = text[shift:shift + (len(text) - shift) // given.length * given.length]
        pieces = pieces.view(-1, given.length)
        order = torch.randperm(len(pieces), generator=generator)
        for rows in order.split(given.batch):
            if len(rows) == given.batch:
                yield pieces[rows].long()


def train(given, model, rate, run=None):
    """Until `steps` are done, or the run's budget is met."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01)
    model.train()

    def loop(run):
        for step, batch in enumerate(batches(given, read(given.text))):
            # to a tenth of the rate in the end; a run's other regions are as far as this one
            done = min(1.0, step / given.steps)
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / 20) * (1 - 0.9 * done)
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            if run:
                run.trained(batch.numel())
            optimizer.step()
            optimizer.zero_grad()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if run.finished if run else step + 1 >= given.steps:
                return

    if not run:
        return loop(None)
    import longhaul  # pylint: disable=import-outside-toplevel
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer) as joined:
        return loop(joined)


def save(given, model):
    """Adapters are folded into their base: whoever judges loads one kind of model."""
    (model.merge_and_unload() if given.lora else model).save_pretrained(given.out)


def make_base(given):
    torch.manual_seed(given.seed)
    model = AutoModelForCausalLM.from_config(LlamaConfig(
        vocab_size=256, hidden_size=given.dim, intermediate_size=3 * given.dim,
        num_hidden_layers=given.layers, num_attention_heads=given.dim // 32,
        num_key_value_heads=given.dim // 32, max_position_embeddings=1024,
        tie_word_embeddings=True))
    train(given, model, 3e-3)
    model.save_pretrained(given.out)


@torch.no_grad()
def judge(given, source):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    print(f"parameters {source} {sum(p.numel() for p in model.parameters())}")
    for path in given.texts:
        text = read(path)
        pieces = text[:len(text) // given.length * given.length].view(-1, given.length)
        total = count = 0.0
        for batch in pieces.long().split(16):
            total += model(input_ids=batch, labels=batch).loss.item() * len(batch)
            count += len(batch)
        print(f"loss {source} {os.path.basename(path)} {total / count:.6f}")


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--steps", type=int, default=100)
    flags.add_argument("--batch", type=int, default=4)
    flags.add_argument("--length", type=int, default=256)
    flags.add_argument("--rate", type=float, default=1e-3)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--lora", action="store_true")
    words = flags.add_subparsers(dest="what", required=True)
    base = words.add_parser("base")
    base.add_argument("text")
    base.add_argument("out")
    base.add_argument("--dim", type=int, default=256)
    base.add_argument("--layers", type=int, default=6)
    initial = words.add_parser("initial")
    initial.add_argument("base")
    initial.add_argument("out")
    for name in ("tune", "join"):
        tune = words.add_parser(name)
        for what in ("base", "text", "out"):
            tune.add_argument(what)
    judged = words.add_parser("judge")
    judged.add_argument("models", nargs="+")
    judged.add_argument("--texts", nargs="+", required=True)
    given = flags.parse_args()
    torch.set_num_threads(given.threads)
    if given.what == "base":
        make_base(given)
    elif given.what == "initial":
        import longhaul  # pylint: disable=import-outside-toplevel
        longhaul.save_initial(load(given), given.out, shards=2)
    elif given.what == "judge":
        for source in given.models:
            judge(given, source)
    else:
        model = load(given)
        train(given, model, given.rate, run=given.what == "join")
        save(given, model)


if __name__ == "__main__":
    main()
