// Goes on: see goes_on.h.
#include "server/coordinator/goes_on.h"

#include <inttypes.h>

#include "server/coordinator/commit.h"

static const char ROW[] = "budget";

lh_err ps_co_take_budget(struct ps_coordinator *c, struct ps_co_budget b)
{
    struct lh_buf bytes = lh_buf(LH_SMALL_BYTES);
    lh_put_u64(&bytes, b.tokens);
    lh_put_u64(&bytes, b.units);
    return ps_co_put_buf(c, ROW, &bytes);
}

lh_err ps_co_budget_start(struct ps_coordinator *c)
{
    struct lh_span bytes;
    uint64_t data = c->epochs * c->epoch_tokens;
    c->budget =
        (struct ps_co_budget){c->conf.budget_tokens ? c->conf.budget_tokens : data, c->units};
    return ps_store_get(c->store, ROW, &bytes) ? LH_OK : ps_co_take_budget(c, c->budget);
}

lh_err ps_co_budget_was(const struct ps_coordinator *c, struct ps_co_budget *was)
{
    struct lh_span bytes;
    *was = c->budget;
    if (!ps_store_get(c->store, ROW, &bytes)) return LH_OK; // a full disk dropped the first one
    struct lh_cursor at = lh_cursor(bytes);
    was->tokens = lh_get_u64(&at);
    was->units = lh_get_u64(&at);
    if (at.failed || lh_left(&at) || !was->tokens)
        return ps_co_bad_row(c, ROW, "is not of a budget and its units");
    return LH_OK;
}

bool ps_co_goes_on(const struct ps_coordinator *c, const struct ps_co_budget *was)
{
    const struct ps_co_budget *is = &c->budget;
    if (is->tokens <= was->tokens && is->units <= was->units) return false;
    lh_logf(c->conf.log, LH_INFO, "run.goes_on",
            "the run had ended with a budget of %" PRIu64 " tokens and %" PRIu64
            " units; it goes on with %" PRIu64 " tokens and %" PRIu64 " units",
            was->tokens, was->units, is->tokens, is->units);
    return true;
}
