// The trace of a push. See trace.h.
#include "common/net/trace.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

static void digits(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

struct lh_trace lh_trace_of_push(struct lh_span job, uint64_t worker, uint64_t incarnation,
                                 uint64_t step, uint32_t shard)
{
    static const char domain[] = "longhaul trace of a push";
    uint8_t name[28];
    struct lh_trace t;
    for (int i = 0; i < 8; i++) {
        name[i] = (uint8_t)(worker >> 8 * i);
        name[8 + i] = (uint8_t)(incarnation >> 8 * i);
        name[16 + i] = (uint8_t)(step >> 8 * i);
    }
    for (int i = 0; i < 4; i++) name[24 + i] = (uint8_t)(shard >> 8 * i);
    const struct lh_span parts[] = {lh_span_str(domain), job, lh_span(name, sizeof name)};
    struct lh_hash hash = lh_hash_of(lh_span(NULL, 0), parts, LH_COUNT(parts));
    hash.b[0] |= 1; // neither number may be 0
    hash.b[16] |= 1;
    digits(hash.b, 16, t.id);
    digits(hash.b + 16, 8, t.span);
    return t;
}

void lh_trace_text(const struct lh_trace *t, char out[LH_TRACE_TEXT_BYTES])
{
    snprintf(out, LH_TRACE_TEXT_BYTES, "00-%s-%s-01", t->id, t->span);
}

static bool is_digit(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

// Copies n digits, of which one at least is not 0.
static bool take(const uint8_t *from, size_t n, char *out)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(from[i])) return false;
        any |= from[i] != '0';
        out[i] = (char)from[i];
    }
    out[n] = 0;
    return any;
}

bool lh_trace_parse(struct lh_span text, struct lh_trace *out)
{
    struct lh_trace t;
    const uint8_t *b = text.data;
    *out = (struct lh_trace){.id = ""};
    if (text.len != LH_TRACE_TEXT_BYTES - 1) return false;
    bool dashes = !memcmp(b, "00-", 3) && b[35] == '-' && b[52] == '-';
    bool flags = is_digit(b[53]) && is_digit(b[54]);
    if (!dashes || !flags || !take(b + 3, 32, t.id) || !take(b + 36, 16, t.span)) return false;
    *out = t;
    return true;
}
