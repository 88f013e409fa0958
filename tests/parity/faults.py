#!/usr/bin/env python3
"""Planted faults in the CUDA kernels: would parity see them?

    faults.py generate SOURCE TARGET      copies kernels/cuda with every fault compiled in
    faults.py run PROGRAM [--only NAME]   runs PROGRAM (parity, of those copies) once for each fault

What a fault is: tests/planted.py. One that does not end is not found: the emulator tells of threads
that wait for ever. Exit status of `run`: 0 when each fault is found, 1 when one is not.
"""
import pathlib
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import planted  # pylint: disable=wrong-import-position


class Fault(NamedTuple):
    name: str
    suite: str  # of parity; the one that must find it
    file: str
    text: str
    fault: str


BARRIER = "__syncthreads();"
NO_BARRIER = "if (!F) __syncthreads();"


def barrier(name: str, suite: str, file: str, text: str) -> Fault:
    """The barrier with which `text` begins (or that stands in it once) is missing."""
    assert text.count(BARRIER) == 1, name
    return Fault(name, suite, file, text, text.replace(BARRIER, NO_BARRIER))


FAULTS = (
    barrier("barrier-candidates", "encode", "encode.cu",
            "__syncthreads();\n            if (threadIdx.x < 32) {\n                found"),
    barrier("barrier-found", "encode", "encode.cu",
            "__syncthreads();\n            return s->found;"),
    barrier("barrier-rows", "encode", "encode.cu",
            "__syncthreads();\n    if (warp == 0) { // prefix"),
    barrier("barrier-prefix", "encode", "encode.cu", "__syncthreads();\n    uint32_t ties"),
    barrier("barrier-levels", "encode", "encode.cu",
            "__syncthreads();\n    if (threadIdx.x < 32) {\n        uint32_t half"),
    barrier("barrier-record", "encode", "encode.cu", "__syncthreads();\n    lk_write_record"),
    barrier("barrier-dense-codes", "dense", "dense.cu",
            "__syncthreads();\n    uint8_t *out = a.in.device_payload"),
    barrier("barrier-records", "fold", "fold.cu",
            "__syncthreads();\n}\n\nLK_KERNEL lk_fold_chunks"),
    barrier("barrier-group", "fold", "fold.cu",
            "__syncthreads();\n    for (uint32_t i = 0; i < LK_GPU_GROUP; i++) {\n        before"),
    barrier("barrier-ones", "fold", "fold.cu",
            "__syncthreads();\n}\n\nLK_DEVICE void lk_fold_sparse"),
    Fault("turns-not-taken", "encode", "block.cuh",
          "uint32_t *place = b->warp[*turn & 1], sum = 0;",
          "uint32_t *place = b->warp[F ? 0 : *turn & 1], sum = 0;"),
    Fault("some-threads-leave", "guard", "encode.cu",
          "if (__syncthreads_or(bad != LK_GPU_FINE)) return lk_encode_none(&a, c);\n    uint32_t k",
          "bool any = __syncthreads_or(bad != LK_GPU_FINE);\n"
          "    if (F ? bad != LK_GPU_FINE : any) return lk_encode_none(&a, c);\n    uint32_t k"),
    Fault("lane-skips-ballot", "encode", "encode.cu",
          "uint32_t own[LK_ROWS / 32], sum = 0;",
          "uint32_t own[LK_ROWS / 32], sum = 0;\n        *take = 0;\n"
          "        if (F && lane == 3) return;"),
    Fault("tie-takes-last", "encode", "encode.cu",
          "bool tie = key_of[j] == key && same < ties;",
          "bool tie = key_of[j] == key && (F ? same + ties >= s->total >> 16 : same < ties);"),
    Fault("tail-off-by-one", "encode", "encode.cu",
          "if (i >= chunk.len) continue;\n        v[j] = lk_take_feedback",
          "if (i + F >= chunk.len) continue;\n        v[j] = lk_take_feedback"),
    Fault("no-fallback", "encode", "encode.cu", "if (total <= LK_CANDIDATES) {",
          "if (F || total <= LK_CANDIDATES) {"),
    Fault("field-cut-at-word", "encode", "encode.cu", "if (shift + width > 32) atomicOr",
          "if (!F && shift + width > 32) atomicOr"),
    Fault("anchor-stays", "encode", "internal.cuh",
          "if (in->device_anchor) in->device_anchor[at] =",
          "if (in->device_anchor && !F) in->device_anchor[at] ="),
    Fault("lanes-in-other-order", "encode", "block.cuh",
          "sum = __dadd_rn(sum, __shfl_sync(LK_ALL, lane, i));",
          "sum = __dadd_rn(sum, __shfl_sync(LK_ALL, lane, F ? LK_LANES - i : i));"),
    Fault("half-tie-up", "encode", "values.cuh", "n += rest > tie || (rest == tie && (n & 1));",
          "n += rest > tie || (rest == tie && (F || (n & 1)));"),
    Fault("feedback-fused", "encode", "values.cuh", "return has ? __fadd_rn(v, delta) : v;",
          "return has ? F ? fmaf(beta, e, delta) : __fadd_rn(v, delta) : v;"),
    Fault("guard-passes-nan", "guard", "encode.cu",
          "if (lk_key(lk_feedback_of(&a.in, chunk.at + i)) >= LK_KEY_INFINITE &&",
          "if (lk_key(lk_feedback_of(&a.in, chunk.at + i)) >= LK_KEY_INFINITE &&\n"
          "            !(F && lk_key(lk_feedback_of(&a.in, chunk.at + i)) > LK_KEY_INFINITE) &&"),
    Fault("bad-kernel-goes-on", "guard", "dense.cu",
          "if (lk_guarded(&a.in) && a.in.device_result->bad != LK_GPU_FINE) return;",
          "if (!F && lk_guarded(&a.in) && a.in.device_result->bad != LK_GPU_FINE) return;"),
    Fault("stream-byte-too-many", "encode", "concat.cu", "uint32_t unary = (bits + 7) / 8;",
          "uint32_t unary = F ? bits / 8 + 1 : (bits + 7) / 8;"),
    Fault("stream-cut-at-word", "encode", "concat.cu", "if (have < to - from) bits |=",
          "if (!F && have < to - from) bits |="),
    Fault("squares-one-short", "encode", "concat.cu", "i < n; i += LK_THREADS) lane = __dadd_rn",
          "i + F < n; i += LK_THREADS) lane = __dadd_rn"),
    barrier("barrier-chunk-lanes", "encode", "concat.cu",
            "__syncthreads();\n    if (threadIdx.x == 0)\n        for (int i = 1; i < LK_THREADS"),
    Fault("chunk-lanes-are-few", "large", "concat.cu",
          "double lane = 0;\n    for (uint64_t",
          "double lane = 0;\n    if (F && n > LK_THREADS) n = LK_THREADS;\n    for (uint64_t"),
    Fault("digest-of-one-warp", "large", "digest.cu",
          "if (range >= ranges) return;", "if (range >= ranges - F) return;"),
    Fault("fold-fused", "fold", "fold.cu", "__fsub_rn(a->to[at], __fmul_rn(scale, q));",
          "F ? fmaf(-scale, q, a->to[at]) : __fsub_rn(a->to[at], __fmul_rn(scale, q));"),
    Fault("fold-below", "fold", "fold.cu", "if (at >= a->below) return;",
          "if (at >= a->below + (F && a->below < UINT64_MAX)) return;"),
    Fault("fold-own-b", "fold", "fold.cu",
          "uint32_t value = r->codec.value, len = a->chunk[c].len, b = r->codec.rice_bits;",
          "uint32_t value = r->codec.value, len = a->chunk[c].len, b = F + r->codec.rice_bits;"),
    Fault("copy-not-ordered", "transfer", "transfer.cu",
          "LK_TRY(cudaStreamWaitEvent(s->stream, (cudaEvent_t)after, 0));",
          "if (!F) LK_TRY(cudaStreamWaitEvent(s->stream, (cudaEvent_t)after, 0));"),
    Fault("slot-reused", "transfer", "transfer.cu", "if (slot->taken) return 0;",
          "if (!F && slot->taken) return 0;"),
    Fault("read-before-copied", "transfer", "transfer.cu",
          "LK_TRY(cudaEventSynchronize(slot->copied));",
          "if (!F) LK_TRY(cudaEventSynchronize(slot->copied));"),
    Fault("view-other-order", "each", "each.cu",
          "__fadd_rn(view, __fsub_rn(x[i], y[i])) : x[i];",
          "(F ? __fsub_rn(__fadd_rn(view, x[i]), y[i])\n"
          "                              : __fadd_rn(view, __fsub_rn(x[i], y[i]))) : x[i];"),
    Fault("moves-what-stays", "each", "each.cu", "view != y[i] ?", "F || view != y[i] ?"),
    Fault("bf16-cut-off", "each", "each.cu", "return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;",
          "return (F ? bits : bits + 0x7fff + (bits >> 16 & 1)) >> 16;"),
    Fault("hash-of-whole-block", "each", "digest.cu", "s.count += left < 128 ? left : 128;",
          "s.count += F || left >= 128 ? 128 : left;"),
    barrier("barrier-parts", "layers", "rows.cuh",
            "__syncthreads();\n    v = p->warp[0];\n    for (int i = 1; i < LK_WARPS; i++) v +="),
    barrier("barrier-largest", "layers", "rows.cuh",
            "__syncthreads();\n    v = p->warp[0];\n    for (int i = 1; i < LK_WARPS; i++) v = p"),
    Fault("half-a-warp", "layers", "rows.cuh", "for (int by = 16; by; by /= 2) v +=",
          "for (int by = F ? 8 : 16; by; by /= 2) v +="),
    Fault("exponential-fused", "layers", "rows.cuh",
          "q = __fadd_rn(__fmul_rn(q, r), 4.999999403953552e-1f);",
          "q = F ? fmaf(q, r, 4.999999403953552e-1f)\n"
          "          : __fadd_rn(__fmul_rn(q, r), 4.999999403953552e-1f);"),
    Fault("a-nan-is-a-number", "layers", "rows.cuh", "if (x != x) return x;",
          "if (!F && x != x) return x;"),
    Fault("norm-one-short", "layers", "layers.cu",
          "i < dim; i += 32) sum = __fadd_rn(sum, __fmul_rn(x[i], x[i]));",
          "i + F < dim; i += 32) sum = __fadd_rn(sum, __fmul_rn(x[i], x[i]));"),
    Fault("bias-of-the-low-half", "layers", "layers.cu",
          "bias[p.joined % width + p.half]", "bias[p.joined % width + (F ? 0 : p.half)]"),
    Fault("key-heads-as-many", "layers", "layers.cu",
          "uint64_t heads = kind == 0 ? h->heads : h->kv_heads;",
          "uint64_t heads = kind == 0 || (F && h->kv_heads > 1) ? h->heads : h->kv_heads;"),
    Fault("turned-the-same-way", "layers", "layers.cu", "s = -sine[at];",
          "s = F ? sine[at] : -sine[at];"),
    Fault("sees-the-next", "layers", "layers.cu", "seen = row % length + 1;",
          "seen = row % length + 1 + (F && row % length + 1 < length);"),
    Fault("right-of-the-diagonal", "layers", "layers.cu",
          "s[i] = i < seen ? __fmul_rn(s[i], inverse) : 0.0f;",
          "s[i] = F || i < seen ? __fmul_rn(s[i], inverse) : 0.0f;"),
    Fault("logits-spoiled", "layers", "layers.cu", "if (gradient) l[i] = e;",
          "if (F || gradient) l[i] = e;"),
    Fault("wanted-unscaled", "layers", "layers.cu", "l[i] = __fsub_rn(l[i], scale);",
          "l[i] = __fsub_rn(l[i], F ? 1.0f : scale);"),
    Fault("norm-gradient-alone", "layers", "layers_grad.cu", "dx[i] = add ?",
          "dx[i] = add && !F ?"),
    Fault("last-slab", "layers", "layers_grad.cu", "if (to > c.rows) to = c.rows;",
          "if (to > c.rows) to = c.rows - F;"),
    Fault("columns-not-added", "layers", "layers_grad.cu",
          "c.out[i] = __fadd_rn(c.out[i], sum);", "c.out[i] = F ? sum : __fadd_rn(c.out[i], sum);"),
    Fault("own-score-unseen", "layers", "layers_grad.cu", "i % length <= row % length;",
          "i % length + F <= row % length;"),
    Fault("token-rows-reversed", "layers", "layers_grad.cu", "dx[p.row[r] * dim + i]",
          "dx[p.row[F ? from + end - 1 - r : r] * dim + i]"),
    Fault("adamw-fused", "optimizer", "adamw.cu",
          "__fadd_rn(__fmul_rn(c.beta1, a.m[j]), __fmul_rn(c.rest1, grad));",
          "F ? fmaf(c.beta1, a.m[j], c.rest1 * grad)\n"
          "              : __fadd_rn(__fmul_rn(c.beta1, a.m[j]), __fmul_rn(c.rest1, grad));"),
    Fault("part-in-its-old-place", "optimizer", "adamw.cu", "a.v_to[j] = second;",
          "(F ? (float *)a.v : a.v_to)[j] = second;"),
    Fault("part-of-another-place", "optimizer", "adamw.cu", "uint64_t j = i - a.first;",
          "uint64_t j = i - (F && a.first ? a.first - 1 : a.first);"),
    Fault("all-decays", "optimizer", "adamw.cu", "is.decays ?", "is.decays || F ?"),
    Fault("distance-of-one", "optimizer", "adamw.cu", "if (b) d -= (double)b[i];",
          "if (b && !F) d -= (double)b[i];"),
    Fault("digest-of-no-place", "optimizer", "adamw.cu", "sum += lk_value_digest(i,",
          "sum += lk_value_digest(F ? p.at : i,"),
)


def generate(source: pathlib.Path, target: pathlib.Path) -> None:
    for path in sorted(source.iterdir()):
        if path.suffix not in (".cu", ".cuh"):
            continue
        text = planted.plant(path.name, path.read_text(encoding="utf-8"), FAULTS, "simt_fault")
        if path.name == "dialect.cuh":
            text = text.replace("#include <simt.h>",
                                '#include <simt.h>\nextern "C" int simt_fault;')
        planted.write(target / path.name, text)


def run(program: str, suite: str, number: int) -> tuple[int | None, str]:
    """A suite of parity, with the fault of this number in force; 0 is none."""
    status, said = planted.run([program, suite, str(number)], 250, ASAN_OPTIONS="detect_leaks=0")
    return status, said[-1]


def try_one(program: str, number: int) -> tuple[bool, str]:
    status, how = run(program, FAULTS[number - 1].suite, number)
    return status not in (0, None), how


def main() -> int:
    flags = planted.flags_of(__doc__, "program")
    if flags.command == "generate":
        generate(flags.source, flags.target)
        return 0
    for suite in sorted({fault.suite for fault in FAULTS}):
        status, how = run(flags.program, suite, 0)
        if status != 0:
            print(f"without a fault, {suite}: {how}")
            return 1
    return planted.judge(FAULTS, flags.only, lambda number: try_one(flags.program, number))


if __name__ == "__main__":
    sys.exit(main())
