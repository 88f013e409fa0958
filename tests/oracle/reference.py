"""The transformer of worker/train/model.h in PyTorch, fp64, written without reading the C code.

Attention is the plain softmax over a masked square, positions follow Hugging Face's rotate_half.
fp64 makes the reference the truth, so that the distance measured is the C code's own rounding.
"""
import math

import torch


def tensors(shape: dict) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the manifest's order (worker/train/model.h)."""
    d, f, vocab = shape["dim"], shape["ffn"], shape["vocab"]
    kv = shape["kv_heads"] * (d // shape["heads"])
    out = [("model.embed_tokens.weight", (vocab, d))]
    for layer in range(shape["layers"]):
        at = f"model.layers.{layer}."
        out.append((at + "input_layernorm.weight", (d,)))
        for name, rows in (("q", d), ("k", kv), ("v", kv)):
            out.append((at + f"self_attn.{name}_proj.weight", (rows, d)))
        if shape["qkv_bias"]:
            for name, rows in (("q", d), ("k", kv), ("v", kv)):
                out.append((at + f"self_attn.{name}_proj.bias", (rows,)))
        out.append((at + "self_attn.o_proj.weight", (d, d)))
        out.append((at + "post_attention_layernorm.weight", (d,)))
        out.append((at + "mlp.gate_proj.weight", (f, d)))
        out.append((at + "mlp.up_proj.weight", (f, d)))
        out.append((at + "mlp.down_proj.weight", (d, f)))
    out.append(("model.norm.weight", (d,)))
    if not shape["tied"]:
        out.append(("lm_head.weight", (vocab, d)))
    return out


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def rotate(x: torch.Tensor, theta: float) -> torch.Tensor:
    """x [batch, heads, length, head_dim]"""
    length, head_dim = x.shape[-2:]
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=x.dtype) / head_dim)
    angle = torch.outer(torch.arange(length, dtype=x.dtype), frequency)
    angle = torch.cat((angle, angle), -1)
    half = torch.cat((-x[..., head_dim // 2:], x[..., :head_dim // 2]), -1)
    return x * angle.cos() + half * angle.sin()


def attention(shape: dict, p: dict, at: str, x: torch.Tensor) -> torch.Tensor:
    batch, length, d = x.shape
    heads, kv_heads = shape["heads"], shape["kv_heads"]

    def project(name: str, count: int) -> torch.Tensor:
        bias = p.get(at + f"{name}_proj.bias")
        y = torch.nn.functional.linear(x, p[at + f"{name}_proj.weight"], bias)
        return y.view(batch, length, count, d // heads).transpose(1, 2)

    q = rotate(project("q", heads), shape["rope_theta"])
    k = rotate(project("k", kv_heads), shape["rope_theta"])
    v = project("v", kv_heads)
    k = k.repeat_interleave(heads // kv_heads, 1)
    v = v.repeat_interleave(heads // kv_heads, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(d // heads)
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(mask, -math.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(batch, length, d) @ p[at + "o_proj.weight"].T


def logits(shape: dict, p: dict, ids: torch.Tensor) -> torch.Tensor:
    x = p["model.embed_tokens.weight"][ids]
    for layer in range(shape["layers"]):
        at, eps = f"model.layers.{layer}.", shape["rms_eps"]
        x = x + attention(shape, p, at + "self_attn.",
                          rmsnorm(x, p[at + "input_layernorm.weight"], eps))
        y = rmsnorm(x, p[at + "post_attention_layernorm.weight"], eps)
        gate = torch.nn.functional.silu(y @ p[at + "mlp.gate_proj.weight"].T)
        x = x + (gate * (y @ p[at + "mlp.up_proj.weight"].T)) @ p[at + "mlp.down_proj.weight"].T
    head = p["model.embed_tokens.weight" if shape["tied"] else "lm_head.weight"]
    return rmsnorm(x, p["model.norm.weight"], shape["rms_eps"]) @ head.T


def solve(shape: dict, flat, ids):
    """flat: fp32 numpy array, ids [n, T + 1]: logits [n * T, vocab], nll sum, gradient of the mean
    loss as one flat array; all fp64."""
    p, at = {}, 0
    for name, size in tensors(shape):
        n = math.prod(size)
        p[name] = torch.tensor(flat[at:at + n], dtype=torch.float64).view(size).requires_grad_()
        at += n
    assert at == len(flat)
    ids = torch.tensor(ids.astype("int64"))
    out = logits(shape, p, ids[:, :-1]).flatten(0, 1)
    nll = torch.nn.functional.cross_entropy(out, ids[:, 1:].flatten(), reduction="sum")
    (nll / out.shape[0]).backward()
    gradient = torch.cat([p[name].grad.flatten() for name, _ in tensors(shape)])
    return out.detach().numpy(), nll.item(), gradient.numpy()


def solve_by_transformers(shape: dict, flat, ids):
    """The same from Hugging Face's own model, in fp64: Qwen2 with qkv biases, Llama without.

    It shows that the shape is the family's, names and rotation included; solve() needs nothing but
    PyTorch."""
    import transformers

    common = {"vocab_size": shape["vocab"], "hidden_size": shape["dim"],
              "intermediate_size": shape["ffn"], "num_hidden_layers": shape["layers"],
              "num_attention_heads": shape["heads"], "num_key_value_heads": shape["kv_heads"],
              "max_position_embeddings": shape["context"], "rms_norm_eps": shape["rms_eps"],
              "tie_word_embeddings": shape["tied"], "attn_implementation": "eager",
              "rope_parameters": {"rope_type": "default", "rope_theta": shape["rope_theta"]}}
    if shape["qkv_bias"]:
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**common))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**common))
    model = model.to(torch.float64).eval()
    state, at = {}, 0
    for name, size in tensors(shape):
        n = math.prod(size)
        state[name] = torch.tensor(flat[at:at + n], dtype=torch.float64).view(size)
        at += n
    if shape["tied"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    ids = torch.tensor(ids.astype("int64"))
    out = model(ids[:, :-1]).logits.flatten(0, 1)
    nll = torch.nn.functional.cross_entropy(out, ids[:, 1:].flatten(), reduction="sum")
    (nll / out.shape[0]).backward()
    named = dict(model.named_parameters())
    gradient = torch.cat([named[name].grad.flatten() for name, _ in tensors(shape)])
    return out.detach().double().numpy(), nll.item(), gradient.double().numpy()
