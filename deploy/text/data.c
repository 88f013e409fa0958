// Text to token shards, units and held-out files. See data.h.
//
// Invariants:
//   1. A .bin holds whole units only, so no unit spans two files and nothing unlisted is written.
//      A unit of documents is one document, and no unit has text of two.
//   2. units.json is removed first and written last: a run that broke off leaves no manifest.
//   3. Unit j of the n units of a language stands at (2j + 1) / 2n of its region's way, so any
//      stretch of a region's units holds its languages in proportion to their size.
#include "deploy/text/data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/app/units_file.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/format/tokens.h"
#include "common/format/units.h"
#include "deploy/text/data_scan.h"
#include "deploy/tool/files.h"
#include "worker/data/loader.h"

enum {
    VOCABULARY = 256,
    HELDOUT_BYTES_MAX = 256 * 1024 * 1024,
    MANIFEST_BYTES_MAX = 512 * 1024 * 1024,
    UNIT_TOKENS_MAX = 1 << 26,
};

// One language, and its text on the way to its files.
struct part {
    const struct dp_language *from;
    uint64_t taken; // bytes of text
    uint64_t kept;  // tokens of its units
    uint8_t last;   // the byte taken last in this file; '\n' at its start
    bool bare;      // the line so far is empty, but for a carriage return
    uint64_t first; // index of its first unit in prepare.unit
    uint64_t units;
    uint64_t placed;       // units already placed in the manifest's order
    struct lh_buf pending; // tokens of the unit being filled
    FILE *out;             // the file being written, or NULL
    char path[DP_PATH_BYTES];
    uint64_t in_file; // tokens
    unsigned files;
};

struct prepare {
    const struct dp_data_prepare_conf *conf;
    struct dp_tree tree;
    struct part *part;    // one per language of the tree
    struct lh_unit *unit; // units in the order they are written
    uint64_t units, capacity;
    struct lh_units manifest; // owns its lists
};

static lh_err sha256(uint8_t out[32], struct lh_span bytes)
{
    if (EVP_Digest(bytes.data, bytes.len, out, NULL, EVP_sha256(), NULL) != 1)
        return lh_fail(LH_ERR_INTERNAL, "sha256 failed");
    return LH_OK;
}

// ---------------------------------------------------------------- token files of a language

static lh_err put_bytes(FILE *out, const char *path, struct lh_span bytes)
{
    if (fwrite(bytes.data, 1, bytes.len, out) != bytes.len)
        return lh_fail_errno(errno, "cannot write %s", path);
    return LH_OK;
}

static lh_err put_header(const struct prepare *p, struct part *x)
{
    struct lh_buf head = lh_buf(LH_TOKENS_HEADER_BYTES);
    lh_tokens_put_header(&head, p->conf->token_bytes, x->in_file);
    lh_err err = lh_buf_err(&head);
    if (!err && fseek(x->out, 0, SEEK_SET)) err = lh_fail_errno(errno, "cannot write %s", x->path);
    if (!err) err = put_bytes(x->out, x->path, lh_buf_span(&head));
    lh_buf_free(&head);
    return err;
}

static lh_err begin_file(const struct prepare *p, struct part *x)
{
    LH_TRY(dp_path(x->path, "%s/%s-%s-%03u.bin", p->conf->out, x->from->region, x->from->name,
                   x->files));
    int fd = open(x->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    x->out = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!x->out) return lh_fail_errno(errno, "cannot write %s", x->path);
    x->files++;
    x->in_file = 0;
    return put_header(p, x); // its count comes at the end
}

static lh_err end_file(const struct prepare *p, struct part *x)
{
    if (!x->out) return LH_OK;
    lh_err err = put_header(p, x);
    if (fclose(x->out) && !err) err = lh_fail_errno(errno, "cannot write %s", x->path);
    x->out = NULL;
    return err;
}

static struct lh_unit *new_unit(struct prepare *p)
{
    if (p->units == p->capacity) {
        uint64_t capacity = p->capacity ? 2 * p->capacity : 1024;
        struct lh_unit *more = realloc(p->unit, capacity * sizeof *more);
        if (!more) return NULL;
        p->unit = more;
        p->capacity = capacity;
    }
    struct lh_unit *u = &p->unit[p->units++];
    *u = (struct lh_unit){0};
    return u;
}

static bool may_leave(const struct prepare *p, const char *region)
{
    for (unsigned i = 0; p->conf->staying && i < p->conf->staying->count; i++)
        if (!strcmp(p->conf->staying->at[i], region)) return false;
    return true;
}

// Writes the pending unit to the file and the list.
static lh_err flush_unit(struct prepare *p, struct part *x)
{
    uint64_t n = x->pending.len / p->conf->token_bytes;
    if (x->out && x->in_file + n > p->conf->file_tokens) LH_TRY(end_file(p, x));
    if (!x->out) LH_TRY(begin_file(p, x));
    struct lh_unit *u = new_unit(p);
    if (!u) return lh_fail(LH_ERR_NO_MEMORY, "no memory for %" PRIu64 " units", p->units);
    u->from = x->in_file;
    u->tokens = n;
    u->may_leave = may_leave(p, x->from->region);
    snprintf(u->file, sizeof u->file, "%s", strrchr(x->path, '/') + 1);
    snprintf(u->language, sizeof u->language, "%s", x->from->name);
    snprintf(u->home, sizeof u->home, "%s", x->from->region);
    LH_TRY(sha256(u->sha256, lh_buf_span(&x->pending)));
    LH_TRY(put_bytes(x->out, x->path, lh_buf_span(&x->pending)));
    lh_buf_clear(&x->pending);
    x->in_file += n;
    x->kept += n;
    x->units++;
    return LH_OK;
}

// Ends the document that is being filled. An empty one is none.
static lh_err end_document(struct prepare *p, struct part *x)
{
    return x->pending.len ? flush_unit(p, x) : LH_OK;
}

// Takes a byte of a document; what is beyond the unit's tokens is dropped. Lines end in '\n', which
// belongs to the document, but for empty lines between two.
static lh_err take_of_document(struct prepare *p, struct part *x, uint8_t byte)
{
    uint32_t width = p->conf->token_bytes;
    bool ends = byte == '\n', line = p->conf->documents == DP_LINE;
    bool splits = p->conf->documents != DP_FILE, bare = x->bare;
    x->taken++;
    x->last = byte;
    x->bare = ends || (bare && byte == '\r');
    if (bare && ends && splits) return end_document(p, x);
    if (x->bare && !ends && splits) return LH_OK;
    if (x->pending.len < p->conf->unit_tokens * width) lh_tokens_put(&x->pending, width, byte);
    LH_TRY(lh_buf_err(&x->pending));
    return ends && line ? end_document(p, x) : LH_OK;
}

static lh_err take_byte(struct prepare *p, struct part *x, uint8_t byte)
{
    uint32_t width = p->conf->token_bytes;
    if (p->conf->documents) return take_of_document(p, x, byte);
    lh_tokens_put(&x->pending, width, byte);
    x->taken++;
    x->last = byte;
    if (x->pending.len < p->conf->unit_tokens * width) return lh_buf_err(&x->pending);
    return flush_unit(p, x);
}

static bool is_full(const struct prepare *p, const struct part *x)
{
    return p->conf->limit_bytes && x->taken >= p->conf->limit_bytes;
}

static lh_err take_text(struct prepare *p, struct part *x, FILE *in, const char *path)
{
    uint8_t block[65536];
    x->last = '\n';
    x->bare = true;
    for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;)
        for (size_t i = 0; i < n; i++) {
            if (is_full(p, x)) return LH_OK;
            LH_TRY(take_byte(p, x, block[i]));
        }
    if (ferror(in)) return lh_fail_errno(errno, "cannot read %s", path);
    // two files never join into one line
    if (x->last != '\n' && !is_full(p, x)) LH_TRY(take_byte(p, x, '\n'));
    return p->conf->documents && !is_full(p, x) ? end_document(p, x) : LH_OK;
}

static lh_err take_language(struct prepare *p, struct part *x)
{
    lh_err err = LH_OK;
    x->first = p->units;
    x->pending = lh_buf(p->conf->unit_tokens * p->conf->token_bytes);
    for (unsigned i = 0; i < x->from->files && !err && !is_full(p, x); i++) {
        FILE *in = fopen(x->from->file[i], "rb");
        if (!in) return lh_fail_errno(errno, "cannot read %s", x->from->file[i]);
        err = take_text(p, x, in, x->from->file[i]);
        fclose(in);
    }
    LH_TRY(err);
    return end_file(p, x);
}

// ---------------------------------------------------------------- the manifest

// The region's language whose next unit stands first on the way, or NULL: all are placed.
static struct part *next_part(struct prepare *p, const char *region)
{
    struct part *best = NULL;
    for (unsigned i = 0; i < p->tree.languages; i++) {
        struct part *x = &p->part[i];
        if (strcmp(x->from->region, region) != 0 || x->placed == x->units) continue;
        // (2 placed + 1) / units, compared without division
        if (!best || (2 * x->placed + 1) * best->units < (2 * best->placed + 1) * x->units)
            best = x;
    }
    return best;
}

static lh_err order_units(struct prepare *p)
{
    struct lh_units *m = &p->manifest;
    if (!p->units)
        return lh_fail(LH_ERR_NOT_FOUND,
                       "no language has a whole unit of %" PRIu64
                       " tokens, or a document; give more text or a smaller --unit-tokens",
                       p->conf->unit_tokens);
    m->unit = calloc(p->units, sizeof *m->unit);
    if (!m->unit) return lh_fail(LH_ERR_NO_MEMORY, "no memory for %" PRIu64 " units", p->units);
    for (unsigned i = 0; i < p->tree.languages; i++)
        for (struct part *x; (x = next_part(p, p->part[i].from->region));) {
            struct lh_unit *u = &m->unit[m->count];
            *u = p->unit[x->first + x->placed++];
            u->id = m->count++;
        }
    LH_ASSERT(m->count == p->units);
    return LH_OK;
}

static lh_err prepare_heldout(const struct prepare *p, const char *path, struct lh_heldout *h)
{
    char out[DP_PATH_BYTES];
    const char *name = strrchr(path, '/') + 1;
    struct lh_buf text = lh_buf(HELDOUT_BYTES_MAX);
    struct lh_buf tokens = lh_buf(LH_TOKENS_HEADER_BYTES + (size_t)HELDOUT_BYTES_MAX * 4);
    lh_err err;
    snprintf(h->language, sizeof h->language, "%.*s", (int)(strlen(name) - strlen(".txt")), name);
    snprintf(h->file, sizeof h->file, "heldout-%s.bin", h->language);
    LH_TRY_TO(out_free, err, dp_file_read(path, &text));
    if (!text.len) {
        err = lh_fail(LH_ERR_MALFORMED, "%s is empty; remove it or give it text", path);
        goto out_free;
    }
    h->bytes = h->tokens = text.len;
    lh_tokens_put_header(&tokens, p->conf->token_bytes, text.len);
    for (size_t i = 0; i < text.len; i++)
        lh_tokens_put(&tokens, p->conf->token_bytes, text.data[i]);
    LH_TRY_TO(out_free, err, lh_buf_err(&tokens));
    LH_TRY_TO(out_free, err,
              sha256(h->sha256, lh_span(tokens.data + LH_TOKENS_HEADER_BYTES,
                                        tokens.len - LH_TOKENS_HEADER_BYTES)));
    LH_TRY_TO(out_free, err, dp_path(out, "%s/%s", p->conf->out, h->file));
    LH_TRY_TO(out_free, err, dp_file_write(out, lh_buf_span(&tokens), 0640));
out_free:
    lh_buf_free(&text);
    lh_buf_free(&tokens);
    return err;
}

static lh_err prepare_heldouts(struct prepare *p)
{
    const struct dp_language *from = &p->tree.heldout;
    p->manifest.heldout = calloc(from->files + 1u, sizeof *p->manifest.heldout);
    if (!p->manifest.heldout) return lh_fail(LH_ERR_NO_MEMORY, "no memory");
    for (unsigned i = 0; i < from->files; i++)
        LH_TRY(
            prepare_heldout(p, from->file[i], &p->manifest.heldout[p->manifest.heldout_count++]));
    return LH_OK;
}

static lh_err write_manifest(const struct prepare *p, const char *path)
{
    struct lh_buf json = lh_buf(MANIFEST_BYTES_MAX);
    lh_err err = lh_units_write(&p->manifest, &json);
    if (!err) err = dp_file_write(path, lh_buf_span(&json), 0640);
    lh_buf_free(&json);
    return err;
}

// ---------------------------------------------------------------- reading it again

static lh_err verify_units(const struct prepare *p, const struct lh_units *u)
{
    struct wk_loader *loader;
    struct wk_loader_conf conf = {.units = u, .dir = p->conf->out, .depth = 4};
    uint32_t ids[2];
    LH_TRY(wk_loader_open(&conf, &loader));
    lh_err err = LH_OK;
    for (uint64_t i = 0; i < u->count && !err; i++) {
        for (uint64_t next = i + 1; next < i + 3; next++) wk_loader_announce(loader, next);
        err = wk_loader_read(loader, i, 0, 1, ids); // the whole unit is checked
    }
    wk_loader_close(loader);
    return err;
}

static lh_err verify_heldout(const struct prepare *p, const struct lh_units *u,
                             const struct lh_heldout *h)
{
    char path[DP_PATH_BYTES];
    uint8_t is[32];
    uint64_t count;
    struct lh_buf file = lh_buf(LH_TOKENS_HEADER_BYTES + (size_t)HELDOUT_BYTES_MAX * 4);
    lh_err err;
    LH_TRY(dp_path(path, "%s/%s", p->conf->out, h->file));
    LH_TRY_TO(out_free, err, dp_file_read(path, &file));
    LH_TRY_TO(out_free, err, lh_tokens_header(lh_buf_span(&file), u->token_bytes, &count));
    LH_TRY_TO(
        out_free, err,
        sha256(is, lh_span(file.data + LH_TOKENS_HEADER_BYTES, file.len - LH_TOKENS_HEADER_BYTES)));
    if (count != h->tokens || file.len != LH_TOKENS_HEADER_BYTES + count * u->token_bytes ||
        memcmp(is, h->sha256, sizeof is) != 0)
        err = lh_fail(LH_ERR_CORRUPT, "%s is not what was written; look at the disk", path);
out_free:
    lh_buf_free(&file);
    return err;
}

static lh_err verify(const struct prepare *p, const char *path)
{
    struct lh_units u = {0};
    lh_err err = lh_units_open(path, &u); // makes the index, too
    if (err) return err;
    LH_TRY_TO(out_free, err, verify_units(p, &u));
    for (uint32_t i = 0; i < u.heldout_count; i++)
        LH_TRY_TO(out_free, err, verify_heldout(p, &u, &u.heldout[i]));
out_free:
    lh_units_close(&u);
    return err;
}

// ---------------------------------------------------------------- the whole

static void say(const struct prepare *p, const char *path)
{
    const struct dp_data_prepare_conf *c = p->conf;
    if (!c->says) return;
    fprintf(c->says, "%-16s %-8s %12s %8s %8s  %s\n", "region", "language", "tokens", "units",
            "dropped", "files");
    for (unsigned i = 0; i < p->tree.languages; i++) {
        const struct part *x = &p->part[i];
        fprintf(c->says, "%-16s %-8s %12" PRIu64 " %8" PRIu64 " %8" PRIu64 "  %u%s\n",
                x->from->region, x->from->name, x->kept, x->units, x->taken - x->kept, x->files,
                x->units ? "" : "  less than one unit: left out");
    }
    for (uint32_t i = 0; i < p->manifest.heldout_count; i++)
        fprintf(c->says, "%-16s %-8s %12" PRIu64 "\n", "(held out)",
                p->manifest.heldout[i].language, p->manifest.heldout[i].tokens);
    enum { NAMED = 20 };
    for (unsigned i = 0; i < p->tree.passed_count && i < NAMED; i++)
        fprintf(c->says, "passed over      %s\n", p->tree.passed[i]);
    if (p->tree.passed_count > NAMED)
        fprintf(c->says, "passed over      %u more\n", p->tree.passed_count - NAMED);
    fprintf(c->says, "%" PRIu64 " %s%" PRIu64 " tokens, read again and checked; manifest: %s\n",
            p->units, c->documents ? "documents of at most " : "units of ", c->unit_tokens, path);
}

static lh_err check_conf(const struct dp_data_prepare_conf *c)
{
    if (c->token_bytes != 2 && c->token_bytes != 4)
        return lh_fail(LH_ERR_INVALID, "tokens have 16 or 32 bits");
    if (c->sequence < 1 || c->unit_tokens < 1 || c->unit_tokens > UNIT_TOKENS_MAX ||
        c->unit_tokens % c->sequence)
        return lh_fail(LH_ERR_INVALID,
                       "a unit of %" PRIu64 " tokens must be a multiple of the sequence of "
                       "%" PRIu64 " and at most %d",
                       c->unit_tokens, c->sequence, UNIT_TOKENS_MAX);
    if (c->file_tokens < c->unit_tokens || c->file_tokens > LH_TOKENS_MAX)
        return lh_fail(LH_ERR_INVALID,
                       "a file of %" PRIu64 " tokens must hold a unit and stay below 2^31",
                       c->file_tokens);
    return LH_OK;
}

static lh_err check_staying(const struct prepare *p)
{
    for (unsigned s = 0; p->conf->staying && s < p->conf->staying->count; s++) {
        bool found = false;
        for (unsigned i = 0; i < p->tree.languages; i++)
            found |= !strcmp(p->tree.language[i].region, p->conf->staying->at[s]);
        if (!found)
            return lh_fail(LH_ERR_INVALID, "no region %s in %s, whose data should stay",
                           p->conf->staying->at[s], p->conf->text);
    }
    return LH_OK;
}

static lh_err prepare_all(struct prepare *p)
{
    char path[DP_PATH_BYTES];
    p->manifest.vocabulary = VOCABULARY;
    p->manifest.token_bytes = p->conf->token_bytes;
    LH_TRY(dp_tree_scan(&p->tree, p->conf->text));
    LH_TRY(check_staying(p));
    LH_TRY(dp_make_dirs(p->conf->out));
    LH_TRY(dp_path(path, "%s/units.json", p->conf->out));
    if (unlink(path) && errno != ENOENT) return lh_fail_errno(errno, "cannot replace %s", path);
    p->part = calloc(p->tree.languages, sizeof *p->part);
    if (!p->part) return lh_fail(LH_ERR_NO_MEMORY, "no memory");
    for (unsigned i = 0; i < p->tree.languages; i++) {
        p->part[i].from = &p->tree.language[i];
        LH_TRY(take_language(p, &p->part[i]));
    }
    LH_TRY(order_units(p));
    LH_TRY(prepare_heldouts(p));
    LH_TRY(write_manifest(p, path));
    LH_TRY(verify(p, path));
    say(p, path);
    return LH_OK;
}

lh_err dp_data_prepare(const struct dp_data_prepare_conf *conf)
{
    LH_TRY(check_conf(conf));
    struct prepare p = {.conf = conf};
    lh_err err = prepare_all(&p);
    for (unsigned i = 0; p.part && i < p.tree.languages; i++) {
        if (p.part[i].out) fclose(p.part[i].out);
        lh_buf_free(&p.part[i].pending);
    }
    free(p.part);
    free(p.unit);
    lh_units_free(&p.manifest);
    dp_tree_free(&p.tree);
    return err;
}
