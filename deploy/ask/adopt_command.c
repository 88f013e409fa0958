// longhaul adopt: lets another server own shards and stand by for them; or chooses the state from
// which shards recover.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/net/wire_admin.h"
#include "deploy/ask/admin.h"
#include "deploy/tool/commands.h"

struct request {
    struct dp_admin admin;
    const char *server, *list, *state; // the server, or the state
    uint8_t digest[LH_HASH_BYTES];
    size_t digest_bytes;
    uint32_t shard[LH_SHARDS_MAX];
    size_t shards;
    uint32_t adopted;
};

// Parses "0-3,5".
static LH_MUST lh_err parse_shards(struct request *q)
{
    const char *at = q->list;
    bool more = *at != 0;
    while (more) {
        char *end;
        unsigned long from = strtoul(at, &end, 10), to = from;
        bool ok = end > at && *at >= '0' && *at <= '9';
        if (ok && *end == '-') {
            at = end + 1;
            to = strtoul(at, &end, 10);
            ok = end > at && *at >= '0' && *at <= '9';
        }
        ok &= to >= from && to < LH_SHARDS_MAX && (*end == ',' || !*end);
        ok = ok && q->shards + (to - from) < LH_SHARDS_MAX;
        if (!ok)
            return lh_fail(LH_ERR_INVALID,
                           "--shards: \"%.100s\" is not valid, expected numbers and "
                           "ranges up to %d, as in 0-3,5",
                           q->list, LH_SHARDS_MAX - 1);
        for (unsigned long i = from; i <= to; i++) q->shard[q->shards++] = (uint32_t)i;
        more = *end == ',';
        at = end + more;
    }
    return LH_OK;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Parses the first bytes of a state's digest, in hexadecimal.
static LH_MUST lh_err parse_state(struct request *q)
{
    size_t n = strlen(q->state);
    bool ok = n >= 16 && n <= 2 * LH_HASH_BYTES && n % 2 == 0;
    for (size_t i = 0; i < n && ok; i++) ok = digit(q->state[i]) >= 0;
    if (!ok)
        return lh_fail(LH_ERR_INVALID,
                       "--state: \"%.100s\" is not valid, expected the 16 digits (0-9, a-f) that "
                       "the event rebuild.claim and the status of the shard's server have",
                       q->state);
    for (q->digest_bytes = 0; q->digest_bytes < n / 2; q->digest_bytes++) {
        const char *at = q->state + 2 * q->digest_bytes;
        q->digest[q->digest_bytes] = (uint8_t)(digit(at[0]) << 4 | digit(at[1]));
    }
    return LH_OK;
}

static void tell(const struct request *q)
{
    const char *s = q->adopted == 1 ? "" : "s";
    if (q->state)
        printf("%u shard%s will be restored from the state %s\n", q->adopted, s, q->state);
    else
        printf("%s may own %u shard%s; it takes %s when it starts as their server\n", q->server,
               q->adopted, s, q->adopted == 1 ? "it" : "them");
}

static lh_err take_answer(void *arg, const void *answer)
{
    struct request *q = arg;
    const struct lh_adopt_reply *m = answer;
    q->adopted = m->shards;
    return LH_OK;
}

static LH_MUST lh_err adopt(struct request *q)
{
    struct lh_adopt_request m = {.server = q->state ? NULL : q->server,
                                 .n_shards = q->shards,
                                 .shards = q->shard,
                                 .state = lh_span(q->digest, q->digest_bytes)};
    lh_err err = dp_admin_open(&q->admin);
    if (!err)
        err = dp_admin_ask(&q->admin, LH_RPC_ADOPT, LH_MESSAGE(adopt_request, &m), take_answer, q);
    if (!err) tell(q);
    dp_admin_close(&q->admin);
    return err;
}

static LH_MUST lh_err run(int argc, char **argv, struct request *q)
{
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--shards", DP_TEXT, &q->list, "LIST", "the shards, as in 0-3,5"},
        {"--state", DP_TEXT, &q->state, "STATE", "the state to restore the shards from"},
        DP_ADMIN_FLAGS(q->admin),
    };
    const struct dp_usage usage = {
        "longhaul adopt REGION/NAME --shards LIST --dir RUNDIR | --coordinator HOST:PORT [flags]\n"
        "       longhaul adopt --state STATE --shards LIST ...",
        "Allows the server with this region and name (in its certificate) to own these shards,\n"
        "and to stand by for them. The coordinator refuses servers without that permission. If\n"
        "the server starts with role shard, it takes the shards from their present server, with\n"
        "the history that server or the followers have. With role standby it only stands by.\n"
        "The permission survives restarts of the coordinator.\n\n"
        "With --state: a server that lost its disk waits for an operator if too few regions hold\n"
        "the same state (rebuild.voices). Its status (claims) and the event rebuild.claim list\n"
        "what each worker holds. The shards are restored from the state with this name, even if\n"
        "only one worker confirms it. Shards that do not wait for a state are not changed.\n\n"
        "Exit codes: 0 done; 2 usage, or no such shard; 4 no coordinator answers; 7 not allowed\n"
        "with this certificate.",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count != !q->state || !q->list)
        return lh_fail(LH_ERR_INVALID, "adopt which server, or which state, for which shards? "
                                       "longhaul adopt REGION/NAME --shards LIST, or longhaul "
                                       "adopt --state STATE --shards LIST");
    if (q->state) LH_TRY(parse_state(q));
    if (!q->state) q->server = rest.at[0];
    LH_TRY(parse_shards(q));
    return adopt(q);
}

lh_err dp_cmd_adopt(int argc, char **argv)
{
    struct request *q = calloc(1, sizeof *q);
    lh_err err = q ? run(argc, argv, q) : LH_ERR_NO_MEMORY;
    free(q);
    return err;
}
