// Decides who encodes which portion of a push. See portions.h.
#include "worker/ranks/encode/portions.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

static bool may_ask(const struct wk_portions *p, uint32_t rank, uint64_t push)
{
    return (p->here >> rank & 1) && push >= p->out_until[rank];
}

static void leave_out(struct wk_portions *p, uint32_t rank)
{
    p->out_until[rank] = p->push + 1 + WK_PORTIONS_SKIP;
}

uint32_t wk_portions_helpers(const struct wk_portions *p)
{
    uint32_t n = 0;
    for (uint32_t rank = 1; rank < p->ranks; rank++) n += may_ask(p, rank, p->push + 1);
    return n;
}

// Gives the first free portion to a rank.
static void give(struct wk_portions *p, uint32_t rank)
{
    if (!may_ask(p, rank, p->push)) return;
    while (p->given < p->count && p->portion[p->given].state != WK_PORTION_FREE) p->given++;
    if (p->given == p->count) return;
    p->portion[p->given++] = (struct wk_portion){WK_PORTION_RANK, rank, false};
}

lh_err wk_portions_begin(struct wk_portions *p, size_t count)
{
    LH_ASSERT(!p->count && count);
    if (count > p->room) {
        struct wk_portion *more = realloc(p->portion, count * sizeof *more);
        if (!more) return lh_fail(LH_ERR_NO_MEMORY, "portions of a push");
        p->portion = more;
        p->room = count;
    }
    memset(p->portion, 0, count * sizeof *p->portion);
    uint32_t helpers = wk_portions_helpers(p);
    p->count = count;
    p->push++;
    p->until_ns = 0;
    p->given = 0;
    // With fewer portions than encoders it is another rank's turn with each push.
    size_t own = count / (helpers + 1), most = count - (own ? own : 1);
    for (size_t i = 0, rounds = WK_PORTIONS_AHEAD * (p->ranks - 1); i < rounds; i++)
        if (p->given < most) give(p, 1 + (uint32_t)((p->push + i) % (p->ranks - 1)));
    return LH_OK;
}

void wk_portions_end(struct wk_portions *p)
{
    p->count = 0;
}

void wk_portions_free(struct wk_portions *p)
{
    free(p->portion);
    p->portion = NULL;
    p->count = p->room = 0;
}

// Frees what a rank has; `unsent`: only what it was not asked for yet.
static void withdraw(struct wk_portions *p, uint32_t rank, bool unsent)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct wk_portion *is = &p->portion[i];
        if (is->state == WK_PORTION_RANK && is->rank == rank && !(unsent && is->sent))
            p->portion[i] = (struct wk_portion){.state = WK_PORTION_FREE};
    }
}

void wk_portions_gone(struct wk_portions *p, uint32_t rank)
{
    p->here &= ~(UINT64_C(1) << rank);
    withdraw(p, rank, false);
}

void wk_portions_here(struct wk_portions *p, uint64_t ranks)
{
    for (uint32_t rank = 1; rank < p->ranks; rank++)
        if ((p->here & ~ranks) >> rank & 1) wk_portions_gone(p, rank);
    p->here = ranks;
}

bool wk_portions_ask(struct wk_portions *p, uint32_t *rank, size_t *portion)
{
    for (size_t i = 0; i < p->count; i++) {
        struct wk_portion *is = &p->portion[i];
        if (is->state != WK_PORTION_RANK || is->sent) continue;
        is->sent = true;
        *rank = is->rank;
        *portion = i;
        return true;
    }
    return false;
}

bool wk_portions_came(struct wk_portions *p, uint32_t rank, uint64_t push, size_t portion)
{
    if (push != p->push || portion >= p->count || rank >= p->ranks) return false;
    struct wk_portion *is = &p->portion[portion];
    if (is->state != WK_PORTION_RANK || is->rank != rank || !is->sent) return false;
    is->state = WK_PORTION_COME;
    if (!p->until_ns) give(p, rank); // Later the leader takes what is free.
    return true;
}

static bool find(const struct wk_portions *p, int state, size_t *portion)
{
    for (size_t i = p->count; i-- > 0;)
        if ((int)p->portion[i].state == state) {
            *portion = i;
            return true;
        }
    return false;
}

static void take_over(struct wk_portions *p, size_t portion)
{
    struct wk_portion *is = &p->portion[portion];
    leave_out(p, is->rank);
    p->counts.late++;
    is->state = WK_PORTION_LEADER;
}

enum wk_portions_next wk_portions_next(struct wk_portions *p, int64_t now_ns, size_t *portion)
{
    if (find(p, WK_PORTION_COME, portion)) return WK_PORTIONS_CHECK;
    if (find(p, WK_PORTION_FREE, portion)) {
        p->portion[*portion].state = WK_PORTION_LEADER;
        return WK_PORTIONS_ENCODE;
    }
    if (!find(p, WK_PORTION_RANK, portion)) return WK_PORTIONS_END;
    if (!p->until_ns) p->until_ns = now_ns + p->patience_ns;
    if (now_ns < p->until_ns) return WK_PORTIONS_WAIT;
    take_over(p, *portion);
    return WK_PORTIONS_ENCODE;
}

void wk_portions_done(struct wk_portions *p, size_t portion, bool fine)
{
    struct wk_portion *is = &p->portion[portion];
    bool own = is->state == WK_PORTION_LEADER;
    LH_ASSERT(own ? fine : is->state == WK_PORTION_COME);
    if (!fine) {
        leave_out(p, is->rank);
        withdraw(p, is->rank, true);
        p->counts.wrong++;
        *is = (struct wk_portion){.state = WK_PORTION_FREE};
        return;
    }
    p->counts.leader += own;
    p->counts.ranks += !own;
    is->state = WK_PORTION_DONE;
}
