// Checkpoints in object stores, for commands. See store.h.
#include "deploy/stored/store.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/objects/address.h"
#include "kernels/storage/checkpoint_read.h"
#include "server/settings.h"

lh_err dp_store_open(const struct dp_job *job, const char *address, struct lh_objects **out)
{
    const struct lh_objects_conf conf = {.env = job->env, .address = address};
    return lh_objects_open(&conf, out);
}

// ---------------------------------------------------------------- fetch

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *at)
{
    (void)is, (void)kind, (void)at;
    return remove(path);
}

void dp_store_remove_folder(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void dp_store_drop(struct dp_fetched *f)
{
    if (f->root[0]) dp_store_remove_folder(f->root);
    f->root[0] = 0;
}

static LH_MUST lh_err make_root(const char *near, char out[DP_PATH_BYTES])
{
    char parent[DP_PATH_BYTES];
    size_t n = strlen(near);
    while (n > 1 && near[n - 1] == '/') n--;
    LH_TRY(dp_path(out, "%.*s.fetch-XXXXXX", (int)n, near));
    LH_TRY(dp_path(parent, "%.*s", (int)n, near));
    char *slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = 0;
        LH_TRY(dp_make_dirs(parent));
    }
    if (mkdtemp(out)) return LH_OK;
    lh_err err = lh_fail(LH_ERR_IO, "%s: no folder can be made for what is fetched", out);
    out[0] = 0;
    return err;
}

// Whether "0,1,5" names the shard; what is no number is complained of elsewhere.
static bool is_named(const char *shards, uint32_t shard)
{
    for (const char *at = shards; at && *at;) {
        char *end;
        unsigned long n = strtoul(at, &end, 10);
        if (end == at) return true;
        if (n == shard) return true;
        at = end + (*end == ',');
    }
    return !shards;
}

struct fetching {
    const struct dp_fetch *q;
    struct lh_objects *o;
    const char *address, *folder;
    unsigned count;
};

static LH_MUST lh_err fetch_one(struct fetching *f, const struct lk_stored *s)
{
    char path[LH_PATH_BYTES], name[LK_STORED_NAME_BYTES];
    LH_TRY(lk_checkpoint_path(f->folder, &s->name, path));
    lh_err err = lk_stored_get(f->o, f->q->job->env, s, path);
    lk_stored_name(s, name);
    if (err == LH_ERR_CORRUPT)
        fprintf(stderr, "%s/%s is passed over: %s\n", f->address, name, lh_err_text(err));
    f->count += !err;
    return err;
}

// Fetches of one shard, from the newest on: what a history that was taken back had from there on
// is not this one's.
static LH_MUST lh_err fetch_shard(struct fetching *f, const struct lk_stored *first, size_t count)
{
    uint64_t below = UINT64_MAX;
    while (count--) {
        const struct lk_stored *s = &first[count];
        if (s->name.version >= below) continue;
        lh_err err = fetch_one(f, s);
        if (err && err != LH_ERR_CORRUPT) return err;
        if (!err) below = s->name.version;
        if (!err && !f->q->all) return LH_OK;
    }
    return LH_OK;
}

static LH_MUST lh_err fetch_all(struct fetching *f)
{
    struct lk_stored_list list;
    lh_err err = lk_stored_list(f->o, LK_STORED_ALL, &list);
    for (size_t i = 0, end; !err && i < list.count; i = end) {
        const struct lk_checkpoint_name *name = &list.at[i].name;
        for (end = i; end < list.count && list.at[end].name.shard == name->shard &&
                      list.at[end].name.weights == name->weights;)
            end++;
        if (name->weights == f->q->weights && is_named(f->q->shards, name->shard))
            err = fetch_shard(f, &list.at[i], end - i);
    }
    if (!err && !f->count)
        err = lh_fail(LH_ERR_NOT_FOUND, "%s holds no checkpoint that can be taken", f->address);
    lk_stored_list_free(&list);
    return err;
}

lh_err dp_store_fetch(const struct dp_fetch *q, struct dp_texts *from, struct dp_fetched *out)
{
    out->root[0] = 0;
    for (unsigned i = 0; i < from->count; i++) {
        struct fetching f = {.q = q, .address = from->at[i], .folder = out->folder[i]};
        if (!lh_objects_is(from->at[i])) continue;
        if (!out->root[0]) LH_TRY(make_root(q->near, out->root));
        LH_TRY(dp_path(out->folder[i], "%s/%u", out->root, i));
        LH_TRY(dp_make_dirs(out->folder[i]));
        LH_TRY(dp_store_open(q->job, f.address, &f.o));
        lh_err err = fetch_all(&f);
        lh_objects_close(f.o);
        if (err) return err;
        from->at[i] = out->folder[i];
    }
    return LH_OK;
}

// ---------------------------------------------------------------- prune

static void say_removed(void *arg, const struct lk_stored *s)
{
    char name[LK_STORED_NAME_BYTES];
    lk_stored_name(s, name);
    printf("%s/%s: removed\n", (const char *)arg, name);
}

lh_err dp_store_prune(const struct dp_job *job, const char *address, unsigned keep)
{
    struct lk_stored_list list;
    struct lh_objects *o;
    LH_TRY(dp_store_open(job, address, &o));
    lh_err err = lk_stored_list(o, LK_STORED_ALL, &list);
    for (size_t i = 0; !err && i < list.count; i++) {
        const struct lk_checkpoint_name *name = &list.at[i].name;
        if (i && list.at[i - 1].name.shard == name->shard &&
            list.at[i - 1].name.weights == name->weights)
            continue;
        err = lk_stored_prune(o, name->shard, name->weights, keep, say_removed,
                              (void *)(uintptr_t)address);
    }
    lk_stored_list_free(&list);
    lh_objects_close(o);
    return err;
}
