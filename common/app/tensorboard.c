// Event files of TensorBoard. See tensorboard.h.
#include "common/app/tensorboard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app/metrics.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/limits.h"

enum { TAG_BYTES = 512, EVENT_BYTES = 1 << 24 };

// Fields of event.proto and summary.proto with their wire types.
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,    // double
    EVENT_STEP = 2 << 3 | 0,         // int64
    EVENT_FILE_VERSION = 3 << 3 | 2, // string
    EVENT_SUMMARY = 5 << 3 | 2,      // Summary
    SUMMARY_VALUE = 1 << 3 | 2,      // Summary.Value, repeated
    VALUE_TAG = 1 << 3 | 2,          // string
    VALUE_SIMPLE = 2 << 3 | 5        // float
};

struct lh_tensorboard {
    struct lh_env *env;
    struct lh_file *file;
    uint64_t at; // end of the last whole record
    double every_s, last_s;
    unsigned points;
};

// ---------------------------------------------------------------- bytes

static void put_varint(struct lh_buf *out, uint64_t value)
{
    for (; value > 0x7f; value >>= 7) lh_put_u8(out, (uint8_t)(value | 0x80));
    lh_put_u8(out, (uint8_t)value);
}

static void put_bytes(struct lh_buf *out, uint8_t field, const void *bytes, size_t n)
{
    lh_put_u8(out, field);
    put_varint(out, n);
    lh_put(out, bytes, n);
}

static uint32_t masked(const void *bytes, size_t n)
{
    uint32_t crc = lh_crc32c(0, bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Appends one record at t->at.
static lh_err append(struct lh_tensorboard *t, const struct lh_buf *event)
{
    LH_TRY(lh_buf_err(event));
    struct lh_buf record = lh_buf(event->len + 16);
    lh_put_u64(&record, event->len);
    lh_put_u32(&record, masked(record.data, record.data ? record.len : 0));
    lh_put(&record, event->data, event->len);
    lh_put_u32(&record, masked(event->data, event->len));
    lh_err err = lh_buf_err(&record);
    if (!err) err = t->env->ops->files->write(t->file, t->at, lh_buf_span(&record));
    if (!err) t->at += record.len;
    lh_buf_free(&record);
    return err;
}

// ---------------------------------------------------------------- what a status says

static void put_value(void *arg, const struct lh_metric *m, const char *labels, const json_t *value)
{
    struct lh_buf *out = arg;
    char tag[TAG_BYTES];
    if (!json_is_number(value) && !json_is_boolean(value)) return;
    double x = json_is_number(value) ? json_number_value(value) : json_is_true(value);
    int n = snprintf(tag, sizeof tag, "%s%s%s", m->name, labels[0] ? "/" : "", labels);
    if (n >= (int)sizeof tag) return;
    size_t len = 0;
    for (const char *c = tag; *c; c++)
        if (*c != '"') tag[len++] = *c;
    struct lh_buf one = lh_buf(TAG_BYTES + 32);
    put_bytes(&one, VALUE_TAG, tag, len);
    lh_put_u8(&one, VALUE_SIMPLE);
    lh_put_f32(&one, (float)(x * m->scale));
    if (!lh_buf_err(&one)) put_bytes(out, SUMMARY_VALUE, one.data, one.len);
    lh_buf_free(&one);
}

static uint64_t step_of(const json_t *status)
{
    static const char *const counts[] = {"credited_tokens", "tokens"};
    for (size_t i = 0; i < LH_COUNT(counts); i++) {
        const json_t *is = json_object_get(status, counts[i]);
        if (json_is_integer(is)) return (uint64_t)json_integer_value(is);
    }
    const json_t *shard = json_array_get(json_object_get(status, "shards"), 0);
    return (uint64_t)json_integer_value(json_object_get(shard, "version"));
}

static void put_head(struct lh_buf *out, double time_s)
{
    lh_put_u8(out, EVENT_WALL_TIME);
    lh_put_f64(out, time_s);
}

bool lh_tensorboard_due(const struct lh_tensorboard *t, double time_s)
{
    return !t->points || fabs(time_s - t->last_s) >= t->every_s;
}

lh_err lh_tensorboard_add(struct lh_tensorboard *t, double time_s, const json_t *status)
{
    struct lh_buf summary = lh_buf(EVENT_BYTES), event = lh_buf(EVENT_BYTES + 64);
    for (unsigned i = 0; i < lh_metrics_count; i++) {
        const struct lh_metric *m = &lh_metrics[i];
        if (m->type == LH_COUNTER || m->type == LH_GAUGE)
            lh_metrics_each(status, m, put_value, &summary);
    }
    put_head(&event, time_s);
    lh_put_u8(&event, EVENT_STEP);
    put_varint(&event, step_of(status));
    put_bytes(&event, EVENT_SUMMARY, summary.data, summary.len);
    lh_err err = lh_buf_err(&summary);
    if (!err) err = append(t, &event);
    lh_buf_free(&summary);
    lh_buf_free(&event);
    if (err) return err;
    t->last_s = time_s;
    if (++t->points % LH_TENSORBOARD_POINTS == 0) t->every_s *= 2;
    return LH_OK;
}

// ---------------------------------------------------------------- a file

static lh_err begin(struct lh_tensorboard *t, const char *folder, const char *process)
{
    static const char version[] = "brain.Event:2";
    const struct lh_files_ops *files = t->env->ops->files;
    char name[256], path[LH_PATH_BYTES];
    long long now = (long long)t->env->ops->wall_s(t->env);
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%.200s", now, process);
    LH_TRY(files->make_dir(t->env, folder));
    LH_TRY(lh_path(path, sizeof path, folder, "%s", name));
    LH_TRY(files->open(t->env, path, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE, &t->file));
    struct lh_buf event = lh_buf(64);
    put_head(&event, (double)now);
    put_bytes(&event, EVENT_FILE_VERSION, version, sizeof version - 1);
    lh_err err = append(t, &event);
    lh_buf_free(&event);
    return err;
}

lh_err lh_tensorboard_open(struct lh_env *env, const char *folder, const char *process,
                           struct lh_tensorboard **out)
{
    struct lh_tensorboard *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return LH_ERR_NO_MEMORY;
    t->env = env;
    t->every_s = LH_TENSORBOARD_EVERY_S;
    lh_err err = begin(t, folder, process);
    if (err)
        lh_tensorboard_close(t);
    else
        *out = t;
    return err;
}

void lh_tensorboard_close(struct lh_tensorboard *t)
{
    if (!t) return;
    if (t->file) t->env->ops->files->close(t->file);
    free(t);
}
