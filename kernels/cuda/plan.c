// A shard's layout and codec in the plugin's form. See plan.h.
//
// Invariant: everything that does not depend on the values is computed here, by kernels/cpu.
#include "kernels/cuda/plan.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cpu/payload.h"

LH_STATIC_ASSERT((int)LK_GPU_CHUNK == LH_CHUNK, "the plugin's chunk");
LH_STATIC_ASSERT((int)LK_GPU_GROUP == LK_GROUP_CHUNKS, "the plugin's group");
LH_STATIC_ASSERT((int)LK_GPU_SUM_LANES == LK_SUM_LANES, "the plugin's lanes of chunks");
LH_STATIC_ASSERT((int)LK_GPU_HEADER_BYTES == LK_HEADER_BYTES, "the plugin's header");

static struct lk_gpu_codec codec_of(const struct lk_coding *coding)
{
    return (struct lk_gpu_codec){coding->index, coding->value, coding->rice_bits, 0,
                                 coding->density};
}

void lk_gpu_plan_free(struct lk_gpu_plan *p)
{
    free(p->chunk);
    free(p->carried);
    free(p->record_at);
    *p = (struct lk_gpu_plan){.chunks = 0};
}

static lh_err allocate(struct lk_gpu_plan *p, uint64_t chunks)
{
    p->chunk = calloc(chunks + 1, sizeof *p->chunk);
    p->carried = calloc(chunks + 1, sizeof *p->carried);
    p->record_at = calloc(chunks + 1, sizeof *p->record_at);
    return p->chunk && p->carried && p->record_at ? LH_OK : LH_ERR_NO_MEMORY;
}

// `record`: bytes of the earlier records, without the data between groups.
static uint64_t add_chunk(struct lk_gpu_plan *p, const struct lk_coding *coding,
                          const struct lk_chunk *c, uint64_t record)
{
    uint64_t n = p->chunks++;
    struct lk_group alone = {.chunk[0] = *c, .chunks = 1};
    lk_group_measure(coding, &alone);
    p->chunk[n] = (struct lk_gpu_chunk){c->at, c->len};
    p->carried[n] = c->k;
    p->record_at[n] = record;
    if (c->k > p->carried_max) p->carried_max = c->k;
    uint32_t words = (uint32_t)((alone.unary_max + 3) / 4);
    if (words > p->unary_words) p->unary_words = words;
    return record + alone.record_bytes;
}

lh_err lk_gpu_plan_create(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                          struct lk_gpu_plan *out)
{
    struct lk_coding coding;
    struct lk_sizes sizes;
    *out = (struct lk_gpu_plan){.chunks = 0};
    LH_TRY(lk_coding_of(codec, &coding));
    if (coding.index == LK_INDEX_FRAGMENT)
        return lh_fail(LH_ERR_UNSUPPORTED,
                       "fragments are not encoded on a GPU; keep the state of a "
                       "private region on the host");
    lk_measure(&coding, layout, &sizes);
    lh_err err = allocate(out, sizes.chunks);
    if (err) {
        lk_gpu_plan_free(out);
        return err;
    }
    out->codec = codec_of(&coding);
    out->values = layout->values;
    out->values_carried = sizes.values;
    out->bytes_max = sizes.bytes_max;
    lk_header_write(out->header, &coding, &sizes);
    struct lk_walk walk = lk_walk(&coding, layout);
    struct lk_group g;
    uint64_t record = coding.index == LK_INDEX_DENSE ? LK_HEADER_BYTES : 0;
    while (lk_walk_next(&walk, &g))
        for (uint32_t i = 0; i < g.chunks; i++)
            record = add_chunk(out, &coding, &g.chunk[i], record);
    return LH_OK;
}

struct lk_gpu_record lk_gpu_record_of(const struct lk_codec *codec, struct lh_span payload,
                                      const uint8_t *device_payload, float scale)
{
    struct lk_coding coding;
    lh_err err = lk_coding_of(codec, &coding);
    LH_ASSERT(err == LH_OK && payload.len >= LK_HEADER_BYTES);
    coding.rice_bits = payload.data[3];
    return (struct lk_gpu_record){device_payload, codec_of(&coding), scale};
}
