#!/usr/bin/env python3
"""Real TRL in a run: tuned.py LIBRARY PACKAGE.

Its SFTTrainer, in full and with adapters, and its DPOTrainer, with the client's stand-in. Models
have random weights, tokens are words.
"""
import os
import sys
import tempfile
import unittest

import peft
import torch
from datasets import Dataset
from fake import Fake, longhaul
from fits import Watch
from longhaul.hf import LonghaulCallback
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

DUES = [0, longhaul.Due.CUT, longhaul.Due.RENEW | longhaul.Due.CUT, 0] * 10
WORDS = ["<pad>", "<end>", "<unknown>", *"the cat dog sees hears a bird and then it runs".split()]


def words():
    """A tokenizer of a few words."""
    of = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unknown>"))
    of.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=of, pad_token="<pad>", eos_token="<end>",
                                   unk_token="<unknown>")


def llama():
    torch.manual_seed(3)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, pad_token_id=0,
        eos_token_id=1, bos_token_id=1))


class Tuned(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lh-tuned-")
        self.addCleanup(folder.cleanup)
        self.folder, self.watch = folder.name, Watch()

    def arguments(self, kind, **given):
        return kind(os.path.join(self.folder, "out"), **{
            "report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 1,
            "save_strategy": "no", "per_device_train_batch_size": 4, "max_steps": 100,
            "learning_rate": 2e-2, "bf16": False, **given})

    def trained(self, trainer, **given):
        """Trains to the end of the run; gives the losses, and the tokens of each boundary."""
        client = Fake(dues=[*DUES[:-1], longhaul.Due.DRAIN])
        LonghaulCallback(client=client, **given).attach(trainer)
        trainer.train()
        self.assertEqual(trainer.state.global_step, len(DUES))  # the Trainer alone would go on
        trained = {n for n, p in trainer.model.named_parameters() if p.requires_grad}
        self.assertEqual({name for _, name in client.of("parameter")}, trained)
        self.assertEqual([len(client.of(name)) for name in ("renew", "cut", "finish")],
                         [10, 20, 1])
        self.assertEqual({one["longhaul/restarts"] for one in self.watch.logs[:len(DUES) - 1]}, {0})
        losses = [one["loss"] for one in self.watch.logs if "loss" in one]
        self.assertLess(losses[-1], 0.5 * losses[0])
        return [tokens for _, _, tokens in client.of("boundary")]

    def texts(self):
        return Dataset.from_dict({"text": ["the cat sees a bird and then it runs",
                                           "the dog hears the cat"] * 80})

    def sft(self, model, **given):
        """Samples of different lengths, whose tokens the Trainer counts."""
        trainer = SFTTrainer(
            model, self.arguments(SFTConfig, include_num_input_tokens_seen="non_padding"),
            train_dataset=self.texts(), processing_class=words(), callbacks=[self.watch], **given)
        tokens = self.trained(trainer)
        self.assertEqual(sum(tokens), trainer.state.num_input_tokens_seen)
        self.assertGreater(len(set(tokens)), 1)
        return trainer

    def test_supervised(self):
        self.sft(llama())

    def test_supervised_adapters(self):
        trainer = self.sft(llama(), peft_config=peft.LoraConfig(
            r=4, target_modules="all-linear", modules_to_save=["lm_head"],
            task_type="CAUSAL_LM"))
        self.assertLess(sum(p.requires_grad for p in trainer.model.parameters()), 20)
        before = llama().state_dict()
        for name, value in trainer.model.state_dict().items():
            if "base_layer" in name:  # the frozen base is unchanged
                name = name.replace("base_model.model.", "").replace("base_layer.", "")
                self.assertTrue(torch.equal(value, before[name]), name)

    def test_preferences(self):
        pairs = Dataset.from_dict({"prompt": ["the cat"] * 160, "chosen": [" sees a bird"] * 160,
                                   "rejected": [" runs and runs"] * 160})
        trainer = DPOTrainer(llama(), llama(), args=self.arguments(DPOConfig), train_dataset=pairs,
                             processing_class=words(), callbacks=[self.watch])
        self.assertEqual(self.trained(trainer, tokens_per_step=20), [20] * len(DUES))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
