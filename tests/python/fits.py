"""A small model that fits a line, and transformers' Trainer for it."""
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

IN = 7


class Fit(torch.nn.Module):
    """Learns y = 0 x[0] + 1 x[1] + ...; the loss is the squared error."""

    main_input_name = "x"

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(IN, 1)

    def forward(self, x, labels):
        found = self.line(x.to(self.line.weight.dtype)).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(found.float(), labels)}


def points(count, seed=1):
    """This many samples."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(count, IN, generator=draw) * 2 - 1
    return [{"x": a, "labels": a @ torch.arange(float(IN))} for a in x]


class Watch(TrainerCallback):
    """Records the Trainer's logs, and the optimizer before and after each step."""

    def __init__(self):
        self.logs, self.rates, self.begun, self.after = [], [], None, []

    def on_train_begin(self, args, state, control, optimizer=None, **_):
        self.begun = moments(optimizer)

    def on_optimizer_step(self, args, state, control, optimizer=None, **_):
        self.rates.append(optimizer.param_groups[0]["lr"])
        self.after.append(moments(optimizer))

    def on_log(self, args, state, control, logs=None, **_):
        self.logs.append(dict(logs))


def moments(optimizer):
    """A copy of an optimizer's state."""
    return {i: {k: v.clone() for k, v in of.items()}
            for i, of in optimizer.state_dict()["state"].items()}


def trainer_of(model, out, *watches, data=None, optimizers=(None, None), **given):
    """The Trainer, not yet attached to a run."""
    args = TrainingArguments(out, **{
        "report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 1,
        "save_strategy": "no", "per_device_train_batch_size": 4, **given})
    return Trainer(model, args, train_dataset=data or points(512),
                   eval_dataset=points(8, seed=2), callbacks=list(watches), optimizers=optimizers)
