"""What a push carries (kernels/docs/0001-payload.md), as PyTorch operations on rows of CHUNK."""
import torch


def carried(values, lengths, density):
    """True where a row's k = max(1, round(density * length)) largest magnitudes are; the lower
    index first among equals. `lengths`: values of each row, the rest is padding."""
    k = (density * lengths.double()).round().clamp_min(1)  # to even, as rint
    inside = torch.arange(values.shape[1], device=values.device) < lengths[:, None]
    size = values.abs().masked_fill(~inside, -1)
    most = int(k.max())
    order = torch.sort(size, dim=1, descending=True, stable=True).indices[:, :most]
    taken = torch.arange(most, device=values.device) < k[:, None]
    return torch.zeros_like(inside).scatter_(1, order, taken)


def mean_of(size, where):
    """Mean magnitude of a row's chosen values, rounded to fp16; 0 where none is."""
    total = size.double().masked_fill(~where, 0).sum(1)
    return (total / where.sum(1).clamp_min(1)).clamp_max(65504).half().float()[:, None]


def signs(values, where):
    """topk-sign: the mean magnitude with each value's sign."""
    size = mean_of(values.abs(), where)
    return torch.where(values < 0, -size, size).masked_fill(~where, 0)


def two_bits(values, where):
    """topk-q2: two classes, parted by the mean, each with a mean of its own."""
    size = values.abs()
    upper = where & (size >= mean_of(size, where))
    level = torch.where(upper, mean_of(size, upper), mean_of(size, where & ~upper))
    return torch.where(values < 0, -level, level).masked_fill(~where, 0)


def encode(codec, values, lengths, density):
    """What a reader of the payload gets. Codecs: dense-fp32, topk-sign, topk-q2."""
    if codec == "dense-fp32":
        return values.clone()
    where = carried(values, lengths, density)
    return {"topk-sign": signs, "topk-q2": two_bits}[codec](values, where)
