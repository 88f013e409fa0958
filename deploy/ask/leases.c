// Fetches the leases of single units, page by page. See leases.h.
#include "common/net/wire_admin.h"
#include "deploy/ask/leases.h"

#include <string.h>

#include "common/base/check.h"
#include "deploy/tool/table.h"

struct page {
    json_t *rows;
    uint64_t next; // UINT64_MAX: the last page
};

static LH_MUST lh_err take_page(void *self, const void *answer)
{
    struct page *p = self;
    const struct lh_status_reply *m = answer;
    json_t *o = json_loads(m->json, JSON_REJECT_DUPLICATES, NULL);
    json_t *rows = json_object_get(o, "leases"), *next = json_object_get(o, "next");
    uint64_t from = p->next;
    lh_err err = LH_OK;
    if (!json_is_array(rows))
        err = lh_fail(LH_ERR_MALFORMED, "the coordinator's answer has no leases");
    p->next = json_is_integer(next) ? (uint64_t)json_integer_value(next) : UINT64_MAX;
    if (!err && p->next <= from) err = lh_fail(LH_ERR_MALFORMED, "a page of leases that goes back");
    if (!err && json_array_extend(p->rows, rows))
        err = lh_fail(LH_ERR_NO_MEMORY, "no memory for the leases");
    json_decref(o);
    return err;
}

lh_err dp_leases_ask(struct dp_admin *a, const struct dp_lease_filter *filter, json_t *rows)
{
    struct page page = {.rows = rows};
    struct lh_status_request m = {.part = "leases",
                                  .state = filter->state,
                                  .home = filter->home,
                                  .language = filter->language,
                                  .worker = filter->worker};
    while (page.next != UINT64_MAX) {
        m.from = page.next;
        LH_TRY(dp_admin_ask(a, LH_RPC_STATUS, LH_MESSAGE(status_request, &m), take_page, &page));
    }
    return LH_OK;
}

static LH_MUST lh_err known(const json_t *rows, const char *key, const char *kind, const char *name)
{
    const json_t *row;
    size_t i;
    if (!name || !name[0]) return LH_OK;
    json_array_foreach(rows, i, row)
    {
        const char *is = json_string_value(json_object_get(row, key));
        if (is && !strcmp(is, name)) return LH_OK;
    }
    return dp_table_missing(rows, NULL, key, kind, name);
}

lh_err dp_leases_known(const struct dp_lease_filter *filter, const json_t *workers,
                       const json_t *all)
{
    LH_TRY(known(workers, "name", "worker", filter->worker));
    LH_TRY(known(all, "home", "home", filter->home));
    return known(all, "language", "language", filter->language);
}
