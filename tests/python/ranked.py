#!/usr/bin/env python3
"""The package on models that real PyTorch shards over real ranks: ranked.py LIBRARY PACKAGE.

Ranks are forks of this process, with gloo between them; the client is a stand-in. Unsupported ways
are refused by name. The optimizer's state that ranks keep: either each rank goes on with its own
values, all from the same boundary, or all of them warm up.
"""
import contextlib
import json
import logging
import math
import multiprocessing
import os
import re
import sys
import tempfile
import traceback
import unittest
from multiprocessing import connection

import peft
import torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin, ParallelismConfig
from fake import Fake, errors, longhaul, model_of
from fits import trainer_of
from gpus import as_if_there_were_gpus
from longhaul.accelerate import LocalSGD
from longhaul.hf import LonghaulCallback
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

CUT = longhaul.Due.CUT
RENEW = longhaul.Due.RENEW
PATIENCE_S = 120
SMALL = {"vocab_size": 33, "hidden_size": 8, "intermediate_size": 15, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16}


# ---------------------------------------------------------------- in a rank

def client_of(rank, ranks, dues=()):
    client = Fake(dues=dues)
    client.rank, client.ranks = rank, ranks
    return client


def told(client, run):
    """The error of a loop that enters `run`, from its own rank or from one that was faster. No
    client may have been called by then."""
    try:
        with run():
            return "it began"
    except (errors.UnsupportedError, errors.RankError) as error:
        if client.of("connect", "start"):
            return "it connected"
        return re.sub(r"^rank \d+ can't go on: UnsupportedError: ", "", str(error))


def refusal(rank, ranks, model, optimizer=None):
    client = client_of(rank, ranks)
    return told(client, lambda: longhaul.AsyncDiLoCo(client, model, optimizer, hook=False))


def tensor_parallel(rank, ranks, plan, name):
    model = model_of((4, 6), (6, 4))
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=name and (name,))
    parts = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    return refusal(rank, ranks, parallelize_module(model, mesh, {k: parts[k] for k in plan}))


def two_ways(rank, ranks, names):
    """Tensor parallel within pairs, FSDP2 over them."""
    model = model_of((4, 6), (6, 4))
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=names)
    parallelize_module(model, mesh[names[1]], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    return refusal(rank, ranks, fully_shard(model, mesh=mesh[names[0]]))


def hybrid(rank, ranks, names):
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=names)
    return refusal(rank, ranks, fully_shard(model_of((4, 6)), mesh=mesh))


def part_of_the_ranks(rank, ranks):
    """Rows over each pair alone; nothing is averaged between the pairs."""
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("a", "b"))
    return refusal(rank, ranks, fully_shard(model_of((4, 6)), mesh=mesh["b"]))


def fsdp1(rank, ranks, orig, inner):
    model = model_of((4, 6))
    wrapped = FullyShardedDataParallel(model, use_orig_params=orig,
                                       device_id=torch.device("cpu"))
    return refusal(rank, ranks, model if inner else wrapped)


def zero_in_backward(rank, ranks):
    model = model_of((4, 6))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1,
                                        overlap_with_ddp=True)
    return refusal(rank, ranks, model, optimizer)


def shared_out(way):
    """A model and its optimizer: fsdp, replicas, zero, or alone. With fsdp the last of four ranks
    has none of the three rows of some parameters."""
    torch.manual_seed(3)
    model = model_of((4, 6), (6, 3))
    if way == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    if way == "zero":
        return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def numbers(value):
    value = value.to_local() if isinstance(value, DTensor) else value
    return value.tolist() if isinstance(value, torch.Tensor) else value


def moments(optimizer):
    of = getattr(optimizer, "optim", optimizer).state_dict()["state"]
    return {str(i): {k: numbers(v) for k, v in one.items()} for i, one in of.items()}


@contextlib.contextmanager
def hearing():
    """Collects the package's log."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("longhaul").addHandler(handler)
    yield said
    logging.getLogger("longhaul").removeHandler(handler)


def loop(rank, ranks, way, folder, steps, every=1):
    """This many steps, with a cut after each. Gives the package's log, the moments at the start and
    after each step, and the parameters at each boundary."""
    states, held = [], []
    model, optimizer = shared_out(way)
    replicas = DistributedDataParallel(model) if way in ("replicas", "zero") else model
    client = client_of(rank, ranks, [CUT] * steps)
    client.cut = lambda: held.append([numbers(p.detach()) for p in model.parameters()])
    with hearing() as said:
        try:
            run = longhaul.AsyncDiLoCo(client, model, optimizer, keep=os.path.join(folder, "kept"),
                                       keep_every=every, tokens_per_step=1)
            run.__enter__()  # pylint: disable=unnecessary-dunder-call
        except errors.StateError as error:
            return {"refused": str(error)}
        states.append(moments(optimizer))
        for step in range(steps):
            replicas(torch.full((1, 4), 1.0 + rank + step)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            states.append(moments(optimizer))
    return {"said": said, "moments": states, "held": held, "steps": len(client.of("boundary"))}


class Holder(Fake):
    """Records the described parameters: this rank's values, and their addresses."""

    def __init__(self, rank, ranks, dues):
        super().__init__(dues=dues)
        self.rank, self.ranks, self.held, self.cuts = rank, ranks, {}, 0

    def parameter(self, name, shape, data, *, first=0, count=0, owner=None, **_):
        self.held[name] = (first, math.prod(shape), owner)

    def renew(self):
        for _, _, values in self.held.values():
            values.add_(1)

    def cut(self):
        self.cuts += 1

    def rows(self):
        return {n: (first, of, values.flatten().tolist())
                for n, (first, of, values) in self.held.items()}


def causal(kind):
    """A tiny model of Hugging Face's; 33 rows are not a multiple of the ranks."""
    torch.manual_seed(3)
    if kind == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SMALL, tie_word_embeddings=True))
    model = LlamaForCausalLM(LlamaConfig(**SMALL))
    if kind == "lora":
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear",
                                                           task_type="CAUSAL_LM"))
    return model


def whole_of(accelerator, model):
    """The trained parameters of all ranks, under their names from before prepare()."""
    trained = {n for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    trained = {n.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")
               for n in trained}
    return {n: v.flatten().tolist() for n, v in accelerator.get_state_dict(model).items()
            if n in trained}


def accelerated(rank, ranks, folder, kind, plugin):
    """A loop of accelerate whose model its FSDP2 shards: two steps, and a renewal by one before
    each cut."""
    with as_if_there_were_gpus():
        accelerator = Accelerator(
            cpu=True, gradient_accumulation_steps=2,
            fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, **plugin))
        model = causal(kind)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
        names = [n for n, p in model.named_parameters() if p.requires_grad]
        model, optimizer = accelerator.prepare(model, optimizer)
        client, wholes = Holder(rank, ranks, [RENEW | CUT] * 2), []
        with hearing() as said, \
                LocalSGD(accelerator, model, client=client, optimizer=optimizer,
                         keep=os.path.join(folder, "kept"), keep_every=1) as local:
            begun = moments(optimizer.optimizer)
            for step in range(4):
                batch = torch.arange(16).view(2, 8) + rank + step
                with accelerator.accumulate(model):
                    accelerator.backward(model(input_ids=batch, labels=batch).loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                    if accelerator.sync_gradients:
                        wholes.append(whole_of(accelerator, model))
                    local.step(tokens=16)
                    if accelerator.sync_gradients:
                        wholes.append(whole_of(accelerator, model))
            rows = client.rows()
        return {"fsdp2": accelerator.is_fsdp2, "names": names, "rows": rows, "wholes": wholes,
                "said": said, "moments": [begun, moments(optimizer.optimizer)],
                "cuts": client.cuts, "boundaries": client.of("boundary")}


def accelerates_hybrid(rank, ranks):
    with as_if_there_were_gpus():
        accelerator = Accelerator(
            cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2),
            parallelism_config=ParallelismConfig(dp_replicate_size=2, dp_shard_size=ranks // 2))
        model = model_of((4, 6))
        model, _ = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
        client = client_of(rank, ranks)
        return told(client, lambda: LocalSGD(accelerator, model, client=client))


def accelerates_fsdp1(_rank, _ranks):
    with as_if_there_were_gpus():
        accelerator = Accelerator(
            cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=1))
        try:
            LocalSGD(accelerator, model_of((4, 6)), client=Fake())
            return "it began"
        except errors.UnsupportedError as error:
            return str(error)


def trained(rank, ranks, folder, fsdp):
    """A life of transformers' Trainer with ranks that shard the model, or with replicas."""
    ids = torch.arange(16).view(2, 8) + rank
    data = [{"input_ids": ids[i % 2], "labels": ids[i % 2]} for i in range(64)]
    given = {"fsdp": True, "fsdp_config": {"version": 2}} if fsdp else {"ddp_backend": "gloo"}
    with as_if_there_were_gpus() if fsdp else contextlib.nullcontext():
        trainer = trainer_of(causal("qwen2"), os.path.join(folder, "out"), data=data, max_steps=3,
                             gradient_accumulation_steps=2, max_grad_norm=1.0, **given)
        client = Holder(rank, ranks, [CUT] * 3)
        with hearing() as said:
            LonghaulCallback(16, client, keep=os.path.join(folder, "kept"), keep_every=1,
                             schedule="local").attach(trainer)
            trainer.train()
        return {"fsdp2": trainer.accelerator.is_fsdp2, "said": said, "cuts": client.cuts,
                "boundaries": client.of("boundary"),
                "steps": sorted({of["step"] for of in moments(trainer.optimizer.optimizer).values()
                                 })}


def be_rank(scene, rank, ranks, folder, given):
    """Runs a fork's scene. Exits without finalizing the interpreter, which gloo's threads do not
    survive."""
    status = 1
    try:
        torch.set_num_threads(1)
        os.environ.update(GLOO_SOCKET_IFNAME="lo", RANK=str(rank), WORLD_SIZE=str(ranks),
                          LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                                world_size=ranks)
        found = scene(rank, ranks, *given)
        with open(os.path.join(folder, f"found.{rank}"), "w", encoding="utf-8") as file:
            json.dump(found, file)
        dist.barrier()  # no rank exits while another still talks to it
        status = 0
    except BaseException:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


# ---------------------------------------------------------------- beside the ranks

def of_ranks(ranks, scene, *given):
    """Gives each rank's result."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="lh-ranked-") as folder:
        forks = [fork.Process(target=be_rank, args=(scene, r, ranks, folder, given))
                 for r in range(ranks)]
        for process in forks:
            process.start()
        left = list(forks)
        try:
            while left and not any(process.exitcode for process in forks):
                if not connection.wait([process.sentinel for process in left], PATIENCE_S):
                    break
                left = [process for process in left if process.exitcode is None]
        finally:
            for process in forks:
                if process.is_alive():
                    process.kill()
                process.join()
        ended = [process.exitcode for process in forks]
        if any(ended):
            raise AssertionError(f"{scene.__name__}{given}: the ranks ended with {ended}")
        found = []
        for r in range(ranks):
            with open(os.path.join(folder, f"found.{r}"), encoding="utf-8") as file:
                found.append(json.load(file))
        return found


class Refused(unittest.TestCase):
    def refused(self, words, ranks, scene, *given):
        for text in of_ranks(ranks, scene, *given):
            self.assertRegex(text, words, (scene.__name__, given))

    def test_tensor_parallel(self):
        for plan, name in (("01", "tp"), ("01", None), ("0", None), ("0", "model"), ("1", None)):
            self.refused(r"^[01]\.weight is placed .*, and not by fully_shard\(\): a model under "
                         "tensor parallel can't be trained in a run yet: take fully_shard",
                         2, tensor_parallel, plan, name)

    def test_tensor_parallel_under_fully_shard(self):
        for names in (("dp", "tp"), ("dp", "model")):
            self.refused("^0.weight is placed .* on a mesh of 2 dimensions: a model under tensor "
                         "parallel can't", 4, two_ways, names)

    def test_hybrid_sharding(self):
        for names in (("replicate", "shard"), ("dp", "fsdp")):
            self.refused(r"^0.weight is placed .* on a mesh of 2 dimensions: a model under hybrid "
                         r"sharding \(HSDP\) can't be trained in a run yet: take fully_shard",
                         4, hybrid, names)

    def test_rows_over_a_part_of_the_ranks(self):
        self.refused("^0.weight is shared out over a mesh of 2 ranks, and 4 train together",
                     4, part_of_the_ranks)

    def test_fsdp1(self):
        for orig in (False, True):
            for inner in (False, True):
                self.refused("is wrapped by FullyShardedDataParallel: a model under FSDP1 can't",
                             2, fsdp1, orig, inner)

    def test_zero_that_steps_within_the_backward_pass(self):
        self.refused(r"overlap_with_ddp=True\) steps within .* leave overlap_with_ddp out",
                     2, zero_in_backward)


    def test_accelerates_hybrid_sharding(self):
        self.refused(r"^0.weight is placed .* under hybrid sharding \(HSDP\) can't", 4,
                     accelerates_hybrid)

    def test_accelerates_fsdp1(self):
        self.refused(r"^FSDP: FSDP1's .* take FSDP2 \(FullyShardedDataParallelPlugin\("
                     r"fsdp_version=2\)", 2, accelerates_fsdp1)


class Accelerates(unittest.TestCase):
    """accelerate's FSDP2, in a loop of its own and under transformers' Trainer."""

    def assert_a_whole(self, found):
        """Rows of all ranks make up the model; renewals reach it; names are the original ones."""
        for one in found:
            self.assertTrue(one["fsdp2"])
            self.assertEqual(list(one["rows"]), one["names"])
            self.assertEqual(one["cuts"], 2)
            self.assertEqual(one["boundaries"], [["boundary", 1, 32], ["boundary", 2, 32]])
            for before, after in (one["wholes"][:2], one["wholes"][2:]):
                for name, values in before.items():
                    self.assertEqual(len(values), len(after[name]))
                    for a, b in zip(values, after[name]):
                        self.assertAlmostEqual(a + 1, b, 5)
        for name in found[0]["names"]:
            self.assertGreater(len({one["rows"][name][0] for one in found}), 1, name)
            rows = sorted(one["rows"][name] for one in found)
            self.assertEqual([v for _, _, values in rows for v in values],
                             found[0]["wholes"][-1][name], name)
            self.assertEqual({of for _, of, _ in rows}, {len(found[0]["wholes"][-1][name])})

    def test_a_loop_of_accelerate(self):
        layers = {"auto_wrap_policy": "transformer_based_wrap"}
        for kind, plugin in (
                ("qwen2", layers), ("llama", {**layers, "cpu_ram_efficient_loading": False}),
                ("llama", {**layers, "activation_checkpointing": True}),
                ("lora", layers)):
            with self.subTest(kind=kind, **plugin), \
                    tempfile.TemporaryDirectory(prefix="lh-fsdp2-") as folder:
                first = of_ranks(2, accelerated, folder, kind, plugin)
                self.assert_a_whole(first)
                second = of_ranks(2, accelerated, folder, kind, plugin)
                self.assert_a_whole(second)
                for before, after in zip(first, second):
                    self.assertEqual(after["moments"][0], before["moments"][1])
                    self.assertIn("goes on from", after["said"][0])

    def test_the_trainer(self):
        for fsdp in (True, False):
            with tempfile.TemporaryDirectory(prefix="lh-trained-") as folder:
                for life in (1, 2):
                    for one in of_ranks(2, trained, folder, fsdp):
                        self.assertEqual((one["fsdp2"], one["cuts"]), (fsdp, 3))
                        self.assertEqual(one["boundaries"],
                                         [["boundary", i, 16] for i in (1, 2, 3)])
                        self.assertEqual(one["steps"], [3 * life])
                        self.assertEqual(len(one["said"]), life - 1)


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lh-kept-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def loop(self, ranks, way, steps):
        return of_ranks(ranks, loop, way, self.folder, steps)

    def goes_on(self, ranks, way, wanted):
        """Another life: every rank starts with these moments of its own, and trains on."""
        for rank, found in enumerate(self.loop(ranks, way, 1)):
            self.assertEqual(found["moments"][0], wanted[rank], (way, rank))
            self.assertIn("goes on from", found["said"][0])
            self.assertEqual({of["step"] for of in found["moments"][1].values()},
                             {of["step"] + 1 for of in wanted[rank].values()})

    def warms_up(self, ranks, way, words):
        for found in self.loop(ranks, way, 0):
            self.assertEqual(found["moments"], [{}])
            self.assertRegex(found["said"][0], words + ".*; the optimizer warms up")

    def test_each_rank_goes_on_with_its_own_values(self):
        for ranks, way in ((2, "fsdp"), (4, "fsdp"), (2, "replicas"), (2, "zero")):
            first = self.loop(ranks, way, 2)
            self.assertNotEqual(first[0]["moments"][1], first[0]["moments"][2])
            if way != "replicas":
                self.assertNotEqual(first[0]["moments"][2], first[1]["moments"][2])
            self.goes_on(ranks, way, [found["moments"][2] for found in first])
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_zero_has_one_boundary_a_step_and_the_same_parameters_at_each(self):
        one, two = self.loop(2, "zero", 3)
        self.assertEqual((one["steps"], two["steps"], len(one["held"])), (3, 3, 3))
        self.assertEqual(one["held"], two["held"])
        self.assertNotEqual(one["held"][0], one["held"][1])

    def test_a_kill_between_two_ranks_writes(self):
        first = self.loop(2, "fsdp", 2)
        os.replace(self.path("kept.1.before"), self.path("kept.1"))  # its second write was lost
        self.goes_on(2, "fsdp", [found["moments"][1] for found in first])
        second = self.loop(2, "fsdp", 2)
        os.remove(self.path("kept.1"))  # killed between its two renames
        self.goes_on(2, "fsdp", [found["moments"][1] for found in second])
        os.remove(self.path("kept.0.before"))
        os.replace(self.path("kept.1.before"), self.path("kept.1"))
        self.warms_up(2, "fsdp", "the ranks kept no state of the same boundary")

    def test_another_number_of_ranks_warms_up_and_says_so(self):
        self.loop(2, "fsdp", 1)
        self.warms_up(4, "fsdp", "was kept by rank [01] of 2, and this is rank [01] of 4")
        self.warms_up(1, "alone", "was kept by rank 0 of 2, and this is rank 0 of 1")
        first = self.loop(1, "alone", 1)
        self.assertEqual(sorted(os.listdir(self.folder)), ["kept", "kept.1"])
        self.goes_on(1, "alone", [first[0]["moments"][1]])
        self.warms_up(2, "fsdp", "was kept by rank 0 of 1, and this is rank [01] of 2")
        first = self.loop(2, "fsdp", 1)
        self.assertNotIn("kept", os.listdir(self.folder))
        self.goes_on(2, "fsdp", [found["moments"][1] for found in first])

    def test_another_way_to_share_out_warms_up_and_says_so(self):
        self.loop(2, "replicas", 1)
        for way in ("fsdp", "zero"):
            self.warms_up(2, way, "was kept while the parameters were shared out otherwise")
        self.loop(2, "zero", 1)
        self.warms_up(2, "replicas", "was kept while the parameters were shared out otherwise")

    def test_an_unusable_kept_state_does_not_spoil_later_ones(self):
        self.loop(2, "replicas", 1)
        first = self.loop(2, "fsdp", 1)
        self.assertIn("kept.0.before", os.listdir(self.folder))  # written by the replicas
        self.goes_on(2, "fsdp", [found["moments"][1] for found in first])

    def test_a_bad_file_of_one_rank_is_named_by_all(self):
        self.loop(2, "fsdp", 1)
        os.truncate(self.path("kept.1"), 100)
        for found in self.loop(2, "fsdp", 0):
            self.assertRegex(found["refused"], "kept.1 can't be read .*: remove it")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
