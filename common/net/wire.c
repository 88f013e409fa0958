// Tables of messages, read and written through protobuf-c. See wire.h.
//
// protobuf-c unpacks and packs its own structs; the tables move their members. A row's field is
// found by its place: rows stand in the order of the fields' numbers, as protobuf-c's fields do
// (tests/unit/common/net/wire.c compares every table with its message).
#include "common/net/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/format/frame.h"
#include "common/net/wire_table.h"
#include "longhaul/v1/member.pb-c.h"

// ---------------------------------------------------------------- memory of a message

struct block {
    struct block *next;
    max_align_t data[];
};

static void *take(struct block **blocks, size_t n)
{
    struct block *b = calloc(1, sizeof *b + n);
    if (!b) return NULL;
    b->next = *blocks;
    *blocks = b;
    return b->data;
}

static void free_blocks(struct block *b)
{
    for (struct block *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

static const void *in(const void *of, size_t at)
{
    return (const uint8_t *)of + at;
}

static void *to(void *of, size_t at)
{
    return (uint8_t *)of + at;
}

static size_t count_of(const struct lh_wire_row *r, const void *plain)
{
    return *(const size_t *)in(plain, r->has - 1);
}

// ---------------------------------------------------------------- fields, before they take memory

// protobuf-c takes about a hundred bytes and a tenth of a microsecond for each sub-message and each
// field that it does not know, which may have two bytes. This is twice what a run of LH_SHARDS_MAX
// shards needs.
enum { FIELDS_MAX = 64 * LH_SHARDS_MAX };

static uint64_t get_varint(struct lh_cursor *c)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = lh_get_u8(c);
        v |= (uint64_t)(byte & 127) << shift;
        if (c->failed || !(byte & 128)) return v;
    }
    c->failed = true;
    return v;
}

bool lh_wire_tag(struct lh_cursor *c, uint64_t *tag, uint64_t *n)
{
    *tag = get_varint(c);
    *n = 0;
    switch (*tag & 7) {
    case 0:
    case 2: *n = get_varint(c); break;
    case 1: (void)lh_get(c, 8); break;
    case 5: (void)lh_get(c, 4); break;
    default: c->failed = true;
    }
    return !c->failed;
}

static const struct lh_wire_row *row_of(const struct lh_wire_type *type, uint64_t number)
{
    for (size_t i = 0; type && i < type->rows; i++)
        if (type->row[i].number == number) return &type->row[i];
    return NULL;
}

static bool has_fields(const struct lh_wire_row *r)
{
    return r && (r->kind == LH_WIRE_SUB || r->kind == LH_WIRE_SUBS || r->kind == LH_WIRE_TRIP ||
                 r->kind == LH_WIRE_ESTIMATE);
}

// Counts the fields of a message and of its sub-messages down from *left. False: there are more, or
// they can't be read. `type` NULL: a message without a table.
static bool count_fields(const struct lh_wire_type *type, struct lh_span bytes, size_t *left)
{
    struct lh_cursor c = lh_cursor(bytes);
    uint64_t tag, n;
    for (; lh_left(&c); --*left) {
        if (!*left || !lh_wire_tag(&c, &tag, &n)) return false;
        if ((tag & 7) != 2) continue;
        struct lh_span part = lh_get(&c, n < SIZE_MAX ? (size_t)n : SIZE_MAX);
        const struct lh_wire_row *r = row_of(type, tag >> 3);
        if (c.failed || (has_fields(r) && !count_fields(r->sub, part, left))) return false;
    }
    return true;
}

// ---------------------------------------------------------------- reading

static LH_MUST lh_err get(const struct lh_wire_type *type, const ProtobufCMessage *m,
                          struct block **blocks, void *out);

static lh_err refuse(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, size_t is,
                     const char *unit, const struct lh_wire_row *r)
{
    bool exact = r->kind == LH_WIRE_FIXED || r->kind == LH_WIRE_NEEDED;
    return lh_fail(LH_ERR_MALFORMED, "a %s whose %s has %zu %s, %s %u", m->descriptor->name,
                   f->name, is, unit, exact ? "not" : "at most", r->size);
}

static lh_err get_bytes(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                        const struct lh_wire_row *r, void *out)
{
    const ProtobufCBinaryData *b = in(m, f->offset);
    if (r->kind == LH_WIRE_BYTES) {
        if (r->size && b->len > r->size) return refuse(m, f, b->len, "bytes", r);
        *(struct lh_span *)to(out, r->at) = lh_span(b->data, b->len);
        return LH_OK;
    }
    if (b->len == 0 && r->kind == LH_WIRE_FIXED) return LH_OK;
    if (b->len != r->size) return refuse(m, f, b->len, "bytes", r);
    memcpy(to(out, r->at), b->data, r->size);
    if (r->has) *(bool *)to(out, r->has - 1) = true;
    return LH_OK;
}

static lh_err get_text(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                       const struct lh_wire_row *r, void *out)
{
    const char *text = *(char *const *)in(m, f->offset);
    size_t n = strlen(text);
    if (r->kind == LH_WIRE_TEXT) {
        if (r->size && n > r->size) return refuse(m, f, n, "bytes", r);
        *(const char **)to(out, r->at) = text;
        return LH_OK;
    }
    char *name = to(out, r->at);
    for (size_t i = 0; i < n && i + 1 < r->size; i++)
        name[i] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    return LH_OK;
}

static lh_err get_sub(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                      const struct lh_wire_row *r, struct block **blocks, void *out)
{
    const ProtobufCMessage *sub = *(ProtobufCMessage *const *)in(m, f->offset);
    if (!sub) return LH_OK;
    if (r->has) *(bool *)to(out, r->has - 1) = true;
    return get(r->sub, sub, blocks, to(out, r->at));
}

static double finite_or_0(double x)
{
    return isfinite(x) ? x : 0;
}

static void get_measured(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                         const struct lh_wire_row *r, void *out)
{
    const void *sub = *(void *const *)in(m, f->offset);
    if (!sub) return;
    if (r->kind == LH_WIRE_TRIP) {
        const Longhaul__V1__Trip *trip = sub;
        *(struct lh_trip *)to(out, r->at) = lh_trip_said(trip->mean_us, trip->spread_us);
    } else {
        const Longhaul__V1__Estimate *e = sub;
        *(struct lh_estimate *)to(out, r->at) =
            (struct lh_estimate){finite_or_0(e->mean), finite_or_0(e->spread)};
    }
}

static lh_err get_subs(ProtobufCMessage *const *list, size_t n, const struct lh_wire_row *r,
                       struct block **blocks, void *out)
{
    uint8_t *items = take(blocks, n * r->sub->size);
    if (!items) return LH_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) LH_TRY(get(r->sub, list[i], blocks, items + i * r->sub->size));
    *(const void **)to(out, r->at) = items;
    return LH_OK;
}

static lh_err get_spans(const ProtobufCBinaryData *list, size_t n, const struct lh_wire_row *r,
                        struct block **blocks, void *out)
{
    struct lh_span *items = take(blocks, n * sizeof *items);
    if (!items) return LH_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) items[i] = lh_span(list[i].data, list[i].len);
    *(const void **)to(out, r->at) = items;
    return LH_OK;
}

static lh_err get_array(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                        const struct lh_wire_row *r, struct block **blocks, void *out)
{
    size_t n = *(const size_t *)in(m, f->quantifier_offset);
    const void *list = *(void *const *)in(m, f->offset);
    if (!n) return LH_OK;
    if (r->size && n > r->size) return refuse(m, f, n, "elements", r);
    *(size_t *)to(out, r->has - 1) = n;
    if (r->kind == LH_WIRE_SUBS) return get_subs(list, n, r, blocks, out);
    if (r->kind == LH_WIRE_SPANS) return get_spans(list, n, r, blocks, out);
    *(const void **)to(out, r->at) = list; // numbers lie as protobuf-c holds them
    return LH_OK;
}

static lh_err get_row(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
                      const struct lh_wire_row *r, struct block **blocks, void *out)
{
    const void *from = in(m, f->offset);
    void *at = to(out, r->at);
    switch (r->kind) {
    case LH_WIRE_U32: *(uint32_t *)at = *(const uint32_t *)from; return LH_OK;
    case LH_WIRE_U64: *(uint64_t *)at = *(const uint64_t *)from; return LH_OK;
    case LH_WIRE_BOOL: *(bool *)at = *(const protobuf_c_boolean *)from; return LH_OK;
    case LH_WIRE_F32: *(float *)at = (float)finite_or_0((double)*(const float *)from); return LH_OK;
    case LH_WIRE_F64: *(double *)at = finite_or_0(*(const double *)from); return LH_OK;
    case LH_WIRE_TEXT:
    case LH_WIRE_NAME: return get_text(m, f, r, out);
    case LH_WIRE_BYTES:
    case LH_WIRE_FIXED:
    case LH_WIRE_NEEDED: return get_bytes(m, f, r, out);
    case LH_WIRE_SUB: return get_sub(m, f, r, blocks, out);
    case LH_WIRE_TRIP:
    case LH_WIRE_ESTIMATE: get_measured(m, f, r, out); return LH_OK;
    default: return get_array(m, f, r, blocks, out);
    }
}

static lh_err get(const struct lh_wire_type *type, const ProtobufCMessage *m, struct block **blocks,
                  void *out)
{
    for (size_t i = 0; i < type->rows; i++)
        LH_TRY(get_row(m, &type->of->fields[i], &type->row[i], blocks, out));
    return LH_OK;
}

void lh_got_free(struct lh_got *got)
{
    if (got->unpacked) protobuf_c_message_free_unpacked(got->unpacked, NULL);
    free_blocks(got->blocks);
    *got = (struct lh_got){0};
}

lh_err lh_wire_get(const struct lh_wire_type *type, struct lh_span bytes, struct lh_got *out)
{
    struct block *blocks = NULL;
    size_t left = FIELDS_MAX + 1;
    *out = (struct lh_got){0};
    bool fits = count_fields(type, bytes, &left);
    if (!left)
        return lh_fail(LH_ERR_TOO_LARGE, "a %s of more than %d fields", type->of->name, FIELDS_MAX);
    ProtobufCMessage *m =
        fits ? protobuf_c_message_unpack(type->of, NULL, bytes.len, bytes.data) : NULL;
    if (!m) return lh_fail(LH_ERR_MALFORMED, "a %s that can't be read", type->of->name);
    void *message = take(&blocks, type->size);
    lh_err err = message ? get(type, m, &blocks, message) : LH_ERR_NO_MEMORY;
    *out = (struct lh_got){message, m, blocks};
    if (err) lh_got_free(out);
    return err;
}

// ---------------------------------------------------------------- writing

static void *put(const struct lh_wire_type *type, const void *plain, struct block **blocks);

static bool is_zeros(const uint8_t *p, size_t n)
{
    while (n && !*p) p++, n--;
    return !n;
}

static ProtobufCBinaryData borrow(const void *data, size_t n)
{
    return (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)data}; // protobuf-c only reads it
}

static void put_bytes(const ProtobufCFieldDescriptor *f, const struct lh_wire_row *r,
                      const void *plain, void *m)
{
    const struct lh_span *s = in(plain, r->at);
    bool there = r->kind != LH_WIRE_FIXED || (r->has ? *(const bool *)in(plain, r->has - 1)
                                                     : !is_zeros(in(plain, r->at), r->size));
    if (r->kind == LH_WIRE_BYTES)
        *(ProtobufCBinaryData *)to(m, f->offset) = borrow(s->data, s->len);
    else if (there)
        *(ProtobufCBinaryData *)to(m, f->offset) = borrow(in(plain, r->at), r->size);
}

static void put_text(const ProtobufCFieldDescriptor *f, const struct lh_wire_row *r,
                     const void *plain, void *m)
{
    const void *at = in(plain, r->at);
    const char *text = r->kind == LH_WIRE_NAME ? at : *(const char *const *)at;
    if (text) *(const char **)to(m, f->offset) = text;
}

static bool put_sub(const ProtobufCFieldDescriptor *f, const struct lh_wire_row *r,
                    const void *plain, struct block **blocks, void *m)
{
    const void *sub = in(plain, r->at);
    if (r->has ? !*(const bool *)in(plain, r->has - 1) : is_zeros(sub, r->sub->size)) return true;
    return (*(void **)to(m, f->offset) = put(r->sub, sub, blocks)) != NULL;
}

static bool put_measured(const ProtobufCFieldDescriptor *f, const struct lh_wire_row *r,
                         const void *plain, struct block **blocks, void *m)
{
    const struct lh_trip *trip = in(plain, r->at);
    const struct lh_estimate *e = in(plain, r->at);
    bool is_trip = r->kind == LH_WIRE_TRIP;
    if (is_trip ? !lh_trip_us(trip->mean_ns) : !(e->mean > 0)) return true;
    const ProtobufCMessageDescriptor *of = f->descriptor;
    void *sub = take(blocks, of->sizeof_message);
    if (!sub) return false;
    protobuf_c_message_init(of, sub);
    *(void **)to(m, f->offset) = sub;
    if (is_trip) {
        ((Longhaul__V1__Trip *)sub)->mean_us = lh_trip_us(trip->mean_ns);
        ((Longhaul__V1__Trip *)sub)->spread_us = lh_trip_us(trip->spread_ns);
    } else {
        ((Longhaul__V1__Estimate *)sub)->mean = e->mean;
        ((Longhaul__V1__Estimate *)sub)->spread = e->spread;
    }
    return true;
}

static bool put_subs(const uint8_t *items, size_t n, const struct lh_wire_row *r,
                     struct block **blocks, void **out)
{
    void **list = take(blocks, n * sizeof *list);
    *out = list;
    for (size_t i = 0; list && i < n; i++)
        if (!(list[i] = put(r->sub, items + i * r->sub->size, blocks))) return false;
    return list != NULL;
}

static bool put_spans(const struct lh_span *items, size_t n, struct block **blocks, void **out)
{
    ProtobufCBinaryData *list = take(blocks, n * sizeof *list);
    *out = list;
    for (size_t i = 0; list && i < n; i++) list[i] = borrow(items[i].data, items[i].len);
    return list != NULL;
}

static bool put_array(const ProtobufCFieldDescriptor *f, const struct lh_wire_row *r,
                      const void *plain, struct block **blocks, void *m)
{
    size_t n = count_of(r, plain);
    const void *items = *(const void *const *)in(plain, r->at);
    void **out = to(m, f->offset);
    if (!n) return true;
    *(size_t *)to(m, f->quantifier_offset) = n;
    if (r->kind == LH_WIRE_SUBS) return put_subs(items, n, r, blocks, out);
    if (r->kind == LH_WIRE_SPANS) return put_spans(items, n, blocks, out);
    *(const void **)out = items;
    return true;
}

static bool put_row(const ProtobufCFieldDescriptor *f, const struct lh_wire_row *r,
                    const void *plain, struct block **blocks, void *m)
{
    const void *from = in(plain, r->at);
    void *at = to(m, f->offset);
    switch (r->kind) {
    case LH_WIRE_U32: *(uint32_t *)at = *(const uint32_t *)from; return true;
    case LH_WIRE_U64: *(uint64_t *)at = *(const uint64_t *)from; return true;
    case LH_WIRE_BOOL: *(protobuf_c_boolean *)at = *(const bool *)from; return true;
    case LH_WIRE_F32: *(float *)at = *(const float *)from; return true;
    case LH_WIRE_F64: *(double *)at = *(const double *)from; return true;
    case LH_WIRE_TEXT:
    case LH_WIRE_NAME: put_text(f, r, plain, m); return true;
    case LH_WIRE_BYTES:
    case LH_WIRE_FIXED:
    case LH_WIRE_NEEDED: put_bytes(f, r, plain, m); return true;
    case LH_WIRE_SUB: return put_sub(f, r, plain, blocks, m);
    case LH_WIRE_TRIP:
    case LH_WIRE_ESTIMATE: return put_measured(f, r, plain, blocks, m);
    default: return put_array(f, r, plain, blocks, m);
    }
}

// Protobuf-c's struct of a plain one, from which it borrows. NULL: no memory.
static void *put(const struct lh_wire_type *type, const void *plain, struct block **blocks)
{
    void *m = take(blocks, type->of->sizeof_message);
    if (!m) return NULL;
    protobuf_c_message_init(type->of, m);
    for (size_t i = 0; i < type->rows; i++)
        if (!put_row(&type->of->fields[i], &type->row[i], plain, blocks, m)) return NULL;
    return m;
}

lh_err lh_wire_put(const struct lh_wire_type *type, const void *message, struct lh_buf *out)
{
    struct block *blocks = NULL;
    const ProtobufCMessage *m = put(type, message, &blocks);
    size_t n = m ? protobuf_c_message_get_packed_size(m) : 0;
    uint8_t *at = m ? lh_buf_grow(out, n) : NULL;
    if (at && n) protobuf_c_message_pack(m, at);
    lh_err err = m ? lh_buf_err(out) : LH_ERR_NO_MEMORY;
    free_blocks(blocks);
    return err;
}

const char *lh_wire_name(const struct lh_wire_type *type)
{
    return type->of->name;
}

// ---------------------------------------------------------------- parts of many messages

struct lh_versions lh_versions_ours(void)
{
    return (struct lh_versions){LH_WIRE_VERSION_MIN, LH_WIRE_VERSION_MAX};
}

struct lh_run lh_run_of(const uint8_t *job, const struct lh_hash *model)
{
    return (struct lh_run){lh_span(job, LH_JOB_BYTES), lh_span(model->b, LH_HASH_BYTES)};
}

lh_err lh_run_check(const struct lh_run *run, const uint8_t *job, const struct lh_hash *model,
                    const char *who)
{
    if (!lh_span_equal(run->job, lh_span(job, LH_JOB_BYTES)))
        return lh_fail(LH_ERR_DENIED,
                       "a %s of another run; check the certificates (tls.cert) of both sides", who);
    if (!lh_span_equal(run->manifest, lh_span(model->b, LH_HASH_BYTES)))
        return lh_fail(LH_ERR_MANIFEST,
                       "a %s with another model's manifest; give servers and workers the same "
                       "model.manifest",
                       who);
    return LH_OK;
}

struct lh_shard_point lh_shard_point(uint32_t shard, uint64_t epoch, uint64_t version,
                                     const struct lh_hash *chain)
{
    return (struct lh_shard_point){.shard = shard, .chained = true, .at = {epoch, version, *chain}};
}

#define T struct lh_versions
static const struct lh_wire_row versions_rows[] = {U32(1, min), U32(2, max)};
#undef T
#define T struct lh_shard_point
static const struct lh_wire_row shard_point_rows[] = {
    U32(1, shard),
    U64(2, at.epoch),
    U64(3, at.version),
    FIXED_IF(4, at.chain, chained),
};
#undef T
const struct lh_wire_type lh_wire_versions = {&longhaul__v1__wire__descriptor,
                                              sizeof(struct lh_versions), versions_rows,
                                              LH_COUNT(versions_rows)};
const struct lh_wire_type lh_wire_shard_point = {&longhaul__v1__point__descriptor,
                                                 sizeof(struct lh_shard_point), shard_point_rows,
                                                 LH_COUNT(shard_point_rows)};
