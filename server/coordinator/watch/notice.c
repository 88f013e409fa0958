// Notices: see notice.h. The bytes, and so their signature, stay the same over all tries.
#include "server/coordinator/watch/notice.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

// Three names, each byte of which JSON may write as six, plus the rest.
LH_STATIC_ASSERT(PS_CO_NOTICE_BYTES >= 3 * 6 * LH_NAME_BYTES + PS_CO_ALARM_BYTES + 512,
                 "a notice fits; an alarm's text has nothing to escape");

static const char *name_of(const struct ps_co_change *change, bool after)
{
    if (change->is_alarm) return change->on == after ? "alarm" : "clear";
    return ps_co_state_name(after ? change->to : change->from);
}

static json_t *alarm_object(const struct ps_co_change *change, const char *run, const char *id,
                            uint64_t dropped)
{
    return json_pack("{s:s s:I s:I s:s s:s s:s s:s s:s s:s s:I s:s}", "id", id, "number",
                     (json_int_t)change->number, "dropped", (json_int_t)dropped, "run", run,
                     "event", change->on ? "rule.alarm" : "rule.clear", "rule", change->name,
                     "region", change->region, "from", name_of(change, false), "to",
                     name_of(change, true), "at", (json_int_t)change->at_s, "text", change->text);
}

static json_t *object(const struct ps_co_change *change, const char *run, const char *id,
                      uint64_t dropped)
{
    return json_pack("{s:s s:I s:I s:s s:s s:s s:s s:s s:s s:s s:I s:f s:f}", "id", id, "number",
                     (json_int_t)change->number, "dropped", (json_int_t)dropped, "run", run,
                     "event", "member.state", "name", change->name, "region", change->region,
                     "role", "worker", "from", ps_co_state_name(change->from), "to",
                     ps_co_state_name(change->to), "at", (json_int_t)change->at_s, "silent_s",
                     (double)change->silent_ns / LH_SECOND, "bound_s",
                     (double)change->bound_ns / LH_SECOND);
}

lh_err ps_co_notice_make(const struct ps_co_change *change, const char *run, uint64_t life,
                         uint64_t dropped, struct ps_co_notice *out)
{
    const size_t flags = JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6);
    char id[48];
    snprintf(id, sizeof id, "%016" PRIx64 "-%" PRIu64, life, change->number);
    json_t *root = change->is_alarm ? alarm_object(change, run, id, dropped)
                                    : object(change, run, id, dropped);
    size_t bytes = root ? json_dumpb(root, out->body, sizeof out->body, flags) : 0;
    json_decref(root);
    if (!bytes) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a notice");
    LH_ASSERT(bytes < sizeof out->body);
    out->body[bytes] = 0;
    out->bytes = bytes;
    memcpy(out->name, change->name, sizeof out->name);
    memcpy(out->region, change->region, sizeof out->region);
    out->from = name_of(change, false);
    out->to = name_of(change, true);
    return LH_OK;
}
