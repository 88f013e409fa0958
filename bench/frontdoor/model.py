"""The model that every arm trains, and the arms' common outer step."""
import hashlib

import torch

SIZES = {  # width, layers, width of the feed-forward parts
    "15m": (384, 8, 1536),
    "tiny": (32, 2, 64),
}
BATCH, LENGTH = 1, 32  # sequences, bytes


class Model(torch.nn.Module):
    """The next byte after each byte of (sequences, bytes); two halves, which can be synchronised
    one after the other."""

    def __init__(self, size):
        super().__init__()
        width, layers, inner = SIZES[size]
        def block():
            return torch.nn.TransformerEncoderLayer(width, width // 16, inner, dropout=0.0,
                                                    batch_first=True, norm_first=True)
        self.lower = torch.nn.Sequential(torch.nn.Embedding(256, width),
                                         *(block() for _ in range(layers // 2)))
        self.upper = torch.nn.Sequential(*(block() for _ in range(layers - layers // 2)),
                                         torch.nn.Linear(width, 256))

    def forward(self, batch):
        """The mean loss."""
        said = self.upper(self.lower(batch[:, :-1]))
        return torch.nn.functional.cross_entropy(said.transpose(1, 2), batch[:, 1:])


def make(size):
    """The same first parameters in every process."""
    torch.manual_seed(7)
    return Model(size)


def outer(parameters):
    """DiLoCo's outer optimizer, with the values of its paper."""
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


def digest(tensors):
    """Of values that have to be equal in all regions."""
    made = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        made.update(tensor.detach().contiguous().numpy())
    return made.hexdigest()


class Anchor:
    """The parameters as all regions last had them, flat, and the outer step from there."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.flat = self._now()
        self.optimizer = outer([self.flat])

    def _now(self):
        return torch.cat([parameter.detach().view(-1) for parameter in self.parameters])

    def delta(self):
        """The pseudo-gradient of the steps since: fp32, as long as the model."""
        return self.flat - self._now()

    def step(self, mean):
        """One outer step by the mean of all regions' pseudo-gradients; training goes on there."""
        self.flat.grad = mean
        self.optimizer.step()
        with torch.no_grad():
            parts = self.flat.split([parameter.numel() for parameter in self.parameters])
            for parameter, part in zip(self.parameters, parts):
                parameter.copy_(part.view_as(parameter))
