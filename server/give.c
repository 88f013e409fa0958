// Give: sends a unit's tokens to a worker that does not have its file (deploy/docs/balancer.md).
//
// 1. Residency is a hard rule, checked here at the data: a unit with `may_leave: false` goes only
//    to workers whose certificate names its home region. A server sends only units of its own
//    region, whatever else is in its folder.
// 2. The sent bytes have the sha256 of the data's manifest, checked before the first byte is sent.
//    The token after the unit belongs to another unit and is not sent.
// 3. Reading, hashing and lz4 run on the status lane, so that they and commits or checkpoints do
//    not wait for each other. An lz4 frame is sent if it saves LH_SHRINK_GAIN_PERCENT.
// 4. Memory is bounded: PS_GIVES_MAX calls, PS_GIVE_BYTES_MAX bytes. A call without progress for
//    LH_JOIN_SILENT_MS is ended. If all is in use, the worker with the most calls loses its newest
//    one to a worker that waits with fewer.
//
// A server that rebuilds or stands by sends units too: they belong to no shard.
#include "server/give.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/shrink.h"
#include "common/format/tokens.h"
#include "common/format/units.h"
#include "common/net/rpc.h"
#include "common/net/wire_data.h"
#include "server/core.h"

enum { TEXT = 400 };

struct ps_giving_unit {
    struct ps_giving_unit *older, *newer;
    struct ps_server *server;
    struct lh_env *env;
    struct lh_call *call; // NULL: the call is over, but the lane still works
    struct lh_peer peer;
    const struct lh_unit *unit; // NULL: no request yet
    uint64_t bytes;             // bytes of the unit's tokens
    uint64_t memory;            // bytes counted for this call
    bool may_shrink, working, ended;
    bool cut; // cancelled by us and not counted any more; on_close() will follow
    // made on the lane
    struct lh_blob *out; // bytes to send
    bool shrunk;
    lh_err err;
    char text[TEXT];
    // sending
    size_t at;
    int sending;
    uint64_t silent_timer;
};

bool ps_gives(const struct ps_server *s)
{
    return s->conf.units && s->conf.units_dir && s->conf.units_dir[0];
}

static void end(struct ps_giving_unit *g, lh_err err, const char *text)
{
    if (g->ended) return;
    g->ended = true;
    lh_call_finish(g->call, err, text);
}

static void free_giving(struct ps_giving_unit *g)
{
    struct ps_give *give = &g->server->give;
    if (g->newer)
        g->newer->older = g->older;
    else
        give->first = g->older;
    if (g->older) g->older->newer = g->newer;
    if (!g->cut) give->calls--;
    if (!g->cut) give->bytes -= g->memory;
    lh_blob_release(g->out);
    free(g);
}

void ps_give_stop(struct ps_server *s)
{
    while (s->give.first) free_giving(s->give.first);
}

// ---------------------------------------------------------------- silence

static void on_silence(void *arg)
{
    struct ps_giving_unit *g = arg;
    g->silent_timer = 0;
    lh_log_peer(g->server->conf.log, LH_WARN, "unit.silent",
                "worker %s of %s has read nothing of unit %" PRIu64
                " for %d s; its call is ended, and the worker may ask again",
                g->peer.name, g->peer.region, g->unit ? g->unit->id : 0, LH_JOIN_SILENT_MS / 1000);
    g->ended = true;
    lh_call_cancel(g->call);
}

static void it_moves(struct ps_giving_unit *g)
{
    lh_cancel(g->env, &g->silent_timer);
    g->silent_timer = lh_after(g->env, LH_JOIN_SILENT_MS * LH_MS, on_silence, g);
}

// ---------------------------------------------------------------- shares

static uint32_t calls_of(const struct ps_server *s, const struct lh_peer *peer)
{
    uint32_t n = 0;
    for (const struct ps_giving_unit *g = s->give.first; g; g = g->older)
        n += !g->cut && lh_peer_same(&g->peer, peer);
    return n;
}

// Ends the newest call of the worker that has the most, if these are more than `has`, the calls of
// a worker that waits.
static bool make_place(struct ps_server *s, uint32_t has)
{
    struct ps_giving_unit *found = NULL;
    for (struct ps_giving_unit *g = s->give.first; g; g = g->older) {
        uint32_t n = g->cut || g->working ? 0 : calls_of(s, &g->peer);
        if (n <= has) continue;
        found = g;
        has = n;
    }
    if (!found) return false;
    lh_log_peer(s->conf.log, LH_WARN, "unit.silent",
                "worker %s of %s reads %u units, while another one waits for fewer; its last call "
                "is ended, and it may ask again",
                found->peer.name, found->peer.region, has);
    found->ended = found->cut = true;
    s->give.calls--;
    s->give.bytes -= found->memory;
    lh_call_cancel(found->call);
    return true;
}

// ---------------------------------------------------------------- on the lane

static lh_err read_tokens(const struct ps_giving_unit *g, uint8_t *out)
{
    const struct lh_unit *u = g->unit;
    const struct ps_conf *conf = &g->server->conf;
    char path[LH_PATH_BYTES];
    struct lh_file *file;
    size_t got = 0;
    uint64_t width = conf->units->token_bytes;
    LH_TRY(lh_path(path, sizeof path, conf->units_dir, "%s", u->file));
    LH_TRY(g->env->ops->files->open(g->env, path, LH_OPEN_READ, &file));
    lh_err err = g->env->ops->files->read(file, LH_TOKENS_HEADER_BYTES + u->from * width, out,
                                          (size_t)g->bytes, &got);
    g->env->ops->files->close(file);
    LH_TRY(err);
    uint8_t is[EVP_MAX_MD_SIZE];
    bool whole = got == g->bytes && EVP_Digest(out, got, is, NULL, EVP_sha256(), NULL) == 1;
    if (whole && memcmp(is, u->sha256, sizeof u->sha256) == 0) return LH_OK;
    return lh_fail(LH_ERR_CORRUPT,
                   "unit %" PRIu64 " of %s: %s; restore the file or run `longhaul data prepare` "
                   "again",
                   u->id, path,
                   got < g->bytes ? "the file ends too early"
                                  : "sha256 is not the manifest's, the tokens changed");
}

// Compresses the tokens, unless lz4 gains too little or memory is short.
static void shrink(struct ps_giving_unit *g)
{
    struct lh_buf small = lh_buf(SIZE_MAX / 2);
    lh_err err = lh_shrink(lh_blob_span(g->out), &small);
    struct lh_blob *out = !err && small.len ? lh_blob_copy(lh_buf_span(&small)) : NULL;
    lh_buf_free(&small);
    if (!out) return;
    lh_blob_release(g->out);
    g->out = out;
    g->shrunk = true;
}

static int64_t make(void *arg)
{
    struct ps_giving_unit *g = arg;
    g->out = lh_blob_new((size_t)g->bytes);
    g->err = g->out ? read_tokens(g, g->out->data) : lh_fail(LH_ERR_BUSY, "no memory for a unit");
    if (g->err)
        snprintf(g->text, sizeof g->text, "%s", lh_err_text(g->err));
    else if (g->may_shrink)
        shrink(g);
    return 0;
}

// ---------------------------------------------------------------- sending

static lh_err send_part(struct ps_giving_unit *g)
{
    struct lh_unit_head head = {0};
    size_t n = g->out->len - g->at;
    if (n > LH_TRAVEL_PART_BYTES) n = LH_TRAVEL_PART_BYTES;
    if (!g->at) {
        head.bytes = g->bytes;
        head.sent_bytes = g->out->len;
        head.lz4 = g->shrunk;
    }
    LH_TRY(lh_send_bulk(g->call, LH_MESSAGE(unit_head, &head), g->out, g->at, n));
    g->at += n;
    g->sending++;
    return LH_OK;
}

static void pump(struct ps_giving_unit *g)
{
    struct ps_server *s = g->server;
    while (!g->ended && g->out && !g->working && g->sending < LH_CALL_SENDS_MAX) {
        lh_err err = send_part(g);
        if (err) {
            end(g, err, lh_err_text(err));
            return;
        }
        if (g->at < g->out->len) continue;
        s->give.count.units++;
        s->give.count.bytes += g->bytes;
        s->give.count.sent_bytes += g->out->len;
        lh_logf(s->conf.log, LH_DEBUG, "unit.given",
                "unit %" PRIu64 ", %" PRIu64 " bytes%s, to worker %s of %s", g->unit->id, g->bytes,
                g->shrunk ? " as lz4" : "", g->peer.name, g->peer.region);
        end(g, LH_OK, "");
    }
}

static void made(void *arg)
{
    struct ps_giving_unit *g = arg;
    g->working = false;
    if (!g->call) { // the call has ended meanwhile
        free_giving(g);
        return;
    }
    if (g->err) {
        g->server->give.count.failed++;
        lh_log_peer(g->server->conf.log, LH_ERROR, "unit.unread", "%s", g->text);
        end(g, g->err, g->text);
        return;
    }
    it_moves(g);
    pump(g);
}

// ---------------------------------------------------------------- what is asked for

static lh_err check_residency(struct ps_server *s, const struct lh_peer *peer,
                              const struct lh_unit *u)
{
    if (strcmp(u->home, s->conf.self.region) != 0)
        return lh_fail(LH_ERR_DENIED,
                       "unit %" PRIu64 " belongs to region %s, this server gives units of %s",
                       u->id, u->home, s->conf.self.region);
    bool goes = u->may_leave || strcmp(peer->region, u->home) == 0;
    if (goes || LH_BUG("unit_leaves")) return LH_OK;
    s->give.count.refused++;
    return lh_fail(LH_ERR_DENIED,
                   "unit %" PRIu64 " may not leave region %s (may_leave: false of the data's "
                   "manifest); region %s does not get it",
                   u->id, u->home, peer->region);
}

static lh_err check(struct ps_giving_unit *g, const struct lh_unit_request *m)
{
    struct ps_server *s = g->server;
    const struct lh_units *units = s->conf.units;
    if (!lh_span_equal(m->job, lh_span(s->conf.job, LH_JOB_BYTES)))
        return lh_fail(LH_ERR_DENIED, "the unit is requested by a worker of another run");
    if (!lh_span_equal(m->units, lh_span(units->hash.b, LH_HASH_BYTES)))
        return lh_fail(LH_ERR_MANIFEST, "the worker has another manifest of the data than this "
                                        "server's data.units: give both the same");
    if (m->unit >= units->count)
        return lh_fail(LH_ERR_NOT_FOUND, "unit %" PRIu64 "; the manifest has %" PRIu64, m->unit,
                       units->count);
    const struct lh_unit *u = &units->unit[m->unit];
    LH_TRY(check_residency(s, &g->peer, u));
    uint64_t bytes = u->tokens * units->token_bytes;
    if (bytes > LH_TRAVEL_BYTES_MAX)
        return lh_fail(LH_ERR_TOO_LARGE,
                       "unit %" PRIu64 " has %" PRIu64
                       " bytes, at most %d can be sent: prepare the data with smaller units",
                       u->id, bytes, LH_TRAVEL_BYTES_MAX);
    uint64_t memory = 2 * bytes + bytes / 128 + 4096; // the tokens and their lz4 frame
    uint32_t has = calls_of(s, &g->peer);
    while (s->give.bytes && s->give.bytes + memory > PS_GIVE_BYTES_MAX && make_place(s, has))
        continue;
    if (s->give.bytes && s->give.bytes + memory > PS_GIVE_BYTES_MAX)
        return lh_fail(LH_ERR_BUSY, "other units are being sent; try again");
    g->unit = u;
    g->bytes = bytes;
    g->memory = memory;
    g->may_shrink = m->lz4;
    s->give.bytes += memory;
    return LH_OK;
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)call;
    struct ps_giving_unit *g = self;
    struct lh_got m;
    if (g->unit || g->ended) return;
    lh_err err = lh_take(msg, &lh_wire_unit_request, &m);
    if (!err) {
        err = check(g, m.message);
        lh_got_free(&m);
    }
    if (!err) {
        g->working = true;
        lh_cancel(g->env, &g->silent_timer); // it waits for us now
        g->env->ops->work(g->env, LH_LANE_STATUS, make, made, g);
        return;
    }
    char text[TEXT];
    snprintf(text, sizeof text, "%s", lh_err_text(err));
    if (err != LH_ERR_BUSY)
        lh_log_peer(g->server->conf.log, LH_WARN, "unit.refused", "worker %s of %s: %s",
                    g->peer.name, g->peer.region, text);
    end(g, err, text);
}

static void on_half_close(void *self, struct lh_call *call)
{
    (void)call;
    struct ps_giving_unit *g = self;
    if (g->unit || g->ended) return;
    end(g, LH_ERR_MALFORMED, "a call without its request");
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)call;
    struct ps_giving_unit *g = self;
    g->sending--;
    it_moves(g); // the last part sent is read last
    pump(g);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    (void)status;
    (void)text;
    struct ps_giving_unit *g = self;
    lh_cancel(g->env, &g->silent_timer);
    g->call = NULL;
    if (!g->working) free_giving(g);
}

static const struct lh_call_ops giver_ops = {on_message, on_half_close, on_sent, on_close};

// ---------------------------------------------------------------- the door

lh_err ps_give_accept(struct ps_server *server, struct lh_call *call, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **self)
{
    struct ps_give *give = &server->give;
    if (!ps_gives(server))
        return lh_fail(LH_ERR_UNSUPPORTED, "this server gives no units (data.dir)");
    uint32_t has = calls_of(server, peer);
    if (give->calls >= PS_GIVES_MAX) (void)make_place(server, has + 1);
    if (give->calls >= PS_GIVES_MAX || has >= PS_GIVES_OF_A_PEER)
        return lh_fail(LH_ERR_BUSY, "%u units are being sent; try again", give->calls);
    struct ps_giving_unit *g = calloc(1, sizeof *g);
    if (!g) return LH_ERR_NO_MEMORY;
    *g = (struct ps_giving_unit){.server = server,
                                 .env = server->conf.env,
                                 .call = call,
                                 .peer = *peer,
                                 .older = give->first};
    if (g->older) g->older->newer = g;
    give->first = g;
    give->calls++;
    *ops = &giver_ops;
    *self = g;
    it_moves(g);
    lh_call_read(call);
    return LH_OK;
}

json_t *ps_give_status(const struct ps_server *s)
{
    const struct ps_give *g = &s->give;
    if (!ps_gives(s)) return NULL;
    return json_pack("{s:i s:I s:I s:I s:I s:I}", "under_way", (int)g->calls, "units",
                     (json_int_t)g->count.units, "bytes", (json_int_t)g->count.bytes, "sent_bytes",
                     (json_int_t)g->count.sent_bytes, "refused", (json_int_t)g->count.refused,
                     "failed", (json_int_t)g->count.failed);
}
