// The store's log of commits in etcd. Layout and rules: etcd_log.h.
#include "server/coordinator/store/etcd_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

enum {
    VERSION = 1,
    BASE_BYTES = 300,
    KEY_COST = 200,      // bytes that etcd keeps beside a value: about this
    NAME_BYTES_MAX = 64, // value of BASE/log
    // A leader has so many numbers for logs of its own: they begin with its key's revision.
    LOGS_OF_LEADER_BITS = 16,
};
static const size_t COMMIT_BYTES_MAX = (size_t)2 << 30;

struct log {
    struct ps_medium base;
    struct ps_etcd *etcd;
    char at[BASE_BYTES], leader[BASE_BYTES + 16];
    struct ps_etcd_fence fence;
    uint64_t number;          // the log in force
    uint64_t next;            // the next log, or the last one that was tried
    uint64_t bytes, appended; // size up to the last kept commit; of the last appended one
    uint64_t next_bytes;
    bool replaced; // the commit under way has replaced it
};

static struct log *of(struct ps_medium *m)
{
    return (struct log *)m;
}

static void key_of_log(const struct log *l, uint64_t log, char out[PS_ETCD_KEY_BYTES])
{
    snprintf(out, PS_ETCD_KEY_BYTES, "%s/log/%016" PRIx64 "/", l->at, log);
}

static void key_of_piece(const struct log *l, uint64_t log, uint64_t number, uint32_t piece,
                         char out[PS_ETCD_KEY_BYTES])
{
    snprintf(out, PS_ETCD_KEY_BYTES, "%s/log/%016" PRIx64 "/%016" PRIx64 "/%08" PRIx32, l->at, log,
             number, piece);
}

// ---------------------------------------------------------------- reading

struct reading {
    struct log *log;
    const struct ps_etcd_log_conf *conf;
    struct ps_replayed *into;
    struct lh_buf commit; // pieces of the commit being read
    uint64_t number;      // its number; 0: none yet
    uint32_t pieces;
    size_t prefix;
};

static lh_err damaged(const struct reading *r, const char *why)
{
    return lh_fail(LH_ERR_CORRUPT,
                   "etcd: %s/log: commit %" PRIu64 " of log %" PRIu64
                   ": %s. Restore etcd from a snapshot (etcdctl snapshot restore), of any age",
                   r->log->at, r->number, r->log->number, why);
}

static bool is_whole(const struct reading *r, struct ps_commit *h)
{
    struct lh_span bytes = lh_buf_span(&r->commit);
    return ps_commit_read(bytes, 0, h) && bytes.len == PS_COMMIT_HEAD_BYTES + h->bytes;
}

// Applies the commit whose pieces were read. Pieces without a head are of a commit that failed.
static LH_MUST lh_err take_commit(struct reading *r)
{
    struct ps_commit h;
    uint64_t bad;
    if (!r->commit.len) return LH_OK;
    struct lh_span bytes = lh_buf_span(&r->commit);
    if (!is_whole(r, &h) || h.number != r->number || !ps_commit_is_whole(bytes, 0, &h, &bad))
        return damaged(r, "it is incomplete");
    if (r->number != r->into->number + 1) return damaged(r, "the one before it is missing");
    LH_TRY(ps_entries_apply(r->into->rows,
                            lh_span(bytes.data + PS_COMMIT_HEAD_BYTES, (size_t)h.bytes)));
    r->into->number = r->number;
    r->log->bytes += bytes.len + KEY_COST;
    lh_buf_clear(&r->commit);
    return LH_OK;
}

static LH_MUST lh_err take_piece(void *arg, const char *key, struct lh_span value)
{
    struct reading *r = arg;
    struct ps_commit h;
    char *end;
    uint64_t number = strtoull(key + r->prefix, &end, 16);
    uint64_t piece = *end == '/' ? strtoull(end + 1, &end, 16) : UINT64_MAX;
    if (*end || piece > UINT32_MAX || !number) return damaged(r, "a key that is none of a commit");
    if (number != r->number) {
        LH_TRY(take_commit(r));
        if (r->conf->beat) LH_TRY(r->conf->beat(r->conf->beat_arg));
        r->number = number;
        r->pieces = 0;
    }
    if (piece && !r->commit.len) return LH_OK; // its head was never written
    if (piece && is_whole(r, &h))
        return LH_OK; // a longer one left it, which failed before this one
    if (piece != r->pieces) return damaged(r, "a piece is missing");
    r->pieces++;
    lh_put(&r->commit, value.data, value.len);
    return lh_buf_err(&r->commit);
}

static LH_MUST lh_err read_log(struct log *l, const struct ps_etcd_log_conf *conf,
                               struct ps_replayed *into)
{
    char prefix[PS_ETCD_KEY_BYTES];
    struct reading r = {.log = l, .conf = conf, .into = into, .commit = lh_buf(COMMIT_BYTES_MAX)};
    key_of_log(l, l->number, prefix);
    r.prefix = strlen(prefix);
    lh_err err = ps_etcd_read(l->etcd, prefix, take_piece, &r);
    if (!err) err = take_commit(&r);
    lh_buf_free(&r.commit);
    return err;
}

// ---------------------------------------------------------------- the log in force

// Puts another log in force, and removes all earlier ones. l->number 0: there is none yet.
static LH_MUST lh_err name_log(struct log *l, uint64_t log)
{
    char key[PS_ETCD_KEY_BYTES], from[PS_ETCD_KEY_BYTES], to[PS_ETCD_KEY_BYTES];
    char was[NAME_BYTES_MAX] = "", value[NAME_BYTES_MAX];
    snprintf(key, sizeof key, "%s/log", l->at);
    snprintf(from, sizeof from, "%s/log/", l->at);
    key_of_log(l, log, to);
    if (l->number) snprintf(was, sizeof was, "%d %" PRIu64, VERSION, l->number);
    snprintf(value, sizeof value, "%d %" PRIu64, VERSION, log);
    LH_TRY(
        ps_etcd_replace(l->etcd, &l->fence, key, lh_span_str(was), lh_span_str(value), from, to));
    l->number = log;
    return LH_OK;
}

static LH_MUST lh_err find_log(struct log *l)
{
    char key[PS_ETCD_KEY_BYTES];
    struct lh_buf value = lh_buf(NAME_BYTES_MAX);
    int64_t created;
    unsigned version = 0;
    snprintf(key, sizeof key, "%s/log", l->at);
    lh_err err = ps_etcd_get(l->etcd, key, &value, &created);
    if (err == LH_ERR_NOT_FOUND) {
        lh_buf_free(&value);
        return name_log(l, 1);
    }
    if (!err && lh_span_equal(lh_buf_span(&value), lh_span_str(PS_ETCD_LOG_MOVED)))
        err = lh_fail(LH_ERR_CONFIG,
                      "etcd: %s: this run was moved to a file (longhaul state to-file). Remove "
                      "coordinator.store from the settings; or, to have the state in etcd again, "
                      "first remove all keys under %s/",
                      key, l->at);
    lh_put_u8(&value, 0);
    if (!err) err = lh_buf_err(&value);
    if (!err &&
        (sscanf((const char *)value.data, "%u %" SCNu64, &version, &l->number) != 2 || !l->number))
        err = lh_fail(LH_ERR_CORRUPT, "etcd: %s: not a coordinator's store", key);
    if (!err && version != VERSION)
        err = lh_fail(LH_ERR_VERSION, "etcd: %s: a store of version %u, this build reads %d", key,
                      version, VERSION);
    lh_buf_free(&value);
    return err;
}

// ---------------------------------------------------------------- commits

// Writes the pieces in reverse, so that the head comes last.
static LH_MUST lh_err write_commit(struct log *l, uint64_t log, uint64_t number,
                                   struct lh_span bytes)
{
    size_t pieces = (bytes.len + PS_ETCD_VALUE_BYTES - 1) / PS_ETCD_VALUE_BYTES;
    LH_ASSERT(pieces && pieces <= UINT32_MAX);
    for (size_t i = pieces; i--;) {
        char key[PS_ETCD_KEY_BYTES];
        size_t from = i * PS_ETCD_VALUE_BYTES, n = bytes.len - from;
        if (n > PS_ETCD_VALUE_BYTES) n = PS_ETCD_VALUE_BYTES;
        key_of_piece(l, log, number, (uint32_t)i, key);
        LH_TRY(ps_etcd_change(l->etcd, &l->fence, key, lh_span(bytes.data + from, n), 0, NULL));
    }
    return LH_OK;
}

static lh_err append(struct ps_medium *m, uint64_t number, struct lh_span bytes)
{
    struct log *l = of(m);
    LH_FAILPOINT("store.write");
    LH_TRY(write_commit(l, l->number, number, bytes));
    l->appended = bytes.len + KEY_COST;
    LH_FAILPOINT("store.committed");
    return LH_OK;
}

static void end(struct ps_medium *m, bool kept)
{
    struct log *l = of(m);
    if (l->replaced)
        l->bytes = l->next_bytes;
    else if (kept)
        l->bytes += l->appended;
    l->replaced = false;
    l->appended = 0;
}

static uint64_t bytes_of(const struct ps_medium *m)
{
    return ((const struct log *)m)->bytes;
}

// ---------------------------------------------------------------- the next log

static lh_err next_drop(struct ps_medium *m)
{
    struct log *l = of(m);
    char prefix[PS_ETCD_KEY_BYTES];
    if (l->next <= l->number) return LH_OK; // none has begun
    key_of_log(l, l->next, prefix);
    return ps_etcd_change(l->etcd, &l->fence, NULL, lh_span(NULL, 0), 0, prefix);
}

// Takes a number that no log had, of this leader or of an earlier one: a late copy of a request for
// another log then finds none of its own.
static lh_err next_begin(struct ps_medium *m)
{
    struct log *l = of(m);
    uint64_t least = (uint64_t)l->fence.created << LOGS_OF_LEADER_BITS;
    if (l->next < l->number) l->next = l->number;
    l->next = l->next < least ? least : l->next + 1;
    l->next_bytes = 0;
    return LH_OK;
}

static lh_err next_append(struct ps_medium *m, uint64_t number, struct lh_span bytes,
                          struct lh_span then)
{
    struct log *l = of(m);
    struct lh_buf both = lh_buf(COMMIT_BYTES_MAX);
    lh_put(&both, bytes.data, bytes.len);
    lh_put(&both, then.data, then.len);
    lh_err err = lh_buf_err(&both);
    if (!err) err = write_commit(l, l->next, number, lh_buf_span(&both));
    l->next_bytes += both.len + KEY_COST;
    lh_buf_free(&both);
    return err;
}

static lh_err next_replace(struct ps_medium *m)
{
    struct log *l = of(m);
    LH_TRY(name_log(l, l->next));
    l->replaced = true;
    return LH_OK;
}

// ---------------------------------------------------------------- life

static void stop(struct ps_medium *m)
{
    ps_etcd_stop(of(m)->etcd);
}

static void close_log(struct ps_medium *m)
{
    struct log *l = of(m);
    ps_etcd_destroy(l->etcd);
    free(l);
}

static const struct ps_medium_ops ops = {
    .marks = false,
    .append = append,
    .next_begin = next_begin,
    .next_append = next_append,
    .next_replace = next_replace,
    .next_drop = next_drop,
    .end = end,
    .bytes = bytes_of,
    .stop = stop,
    .close = close_log,
};

lh_err ps_store_open_etcd(const struct ps_etcd_log_conf *conf, struct ps_store **out)
{
    struct ps_replayed found = {.rows = ps_rows_create(0), .marked = true};
    struct log *l = calloc(1, sizeof *l);
    if (!l || !found.rows) {
        ps_etcd_destroy(conf->etcd);
        ps_rows_destroy(found.rows);
        free(l);
        return LH_ERR_NO_MEMORY;
    }
    l->base.ops = &ops;
    l->etcd = conf->etcd;
    int n = snprintf(l->at, sizeof l->at, "%s", conf->base);
    LH_ASSERT(n > 0 && (size_t)n < sizeof l->at);
    snprintf(l->leader, sizeof l->leader, "%s/leader", l->at);
    l->fence = (struct ps_etcd_fence){l->leader, conf->created};
    lh_err err = find_log(l);
    if (!err) err = read_log(l, conf, &found);
    if (!err) return ps_store_over(&l->base, &found, out);
    ps_rows_destroy(found.rows);
    close_log(&l->base);
    return err;
}
