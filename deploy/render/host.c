// host.sh: the processes of one host of a region's worker, each started again after a failure.
//
// 1. An exit code that a restart would repeat ends all: 2, 6 and 7, as in deploy/systemd.
// 2. At SIGTERM a loop ends before its worker, which still takes its last cut. The worker then
//    gives its units back and saves its state (worker/leave.c).
#include <string.h>

#include "common/base/check.h"
#include "deploy/render/render.h"
#include "worker/ranks/reduce.h"

static const char start[] =
    "set -u\n"
    "worker=$1 host=${2:-0}\n"
    "asked= loop= ranks= status=0\n"
    "\n"
    "# Runs a program, and again 5 s after a failure, unless a restart would repeat it.\n"
    "keep() {\n"
    "    local asked= pid= status\n"
    "    trap 'asked=1; [ -z \"$pid\" ] || kill -TERM \"$pid\" 2>/dev/null' TERM\n"
    "    while :; do\n"
    "        \"$@\" &\n"
    "        pid=$!\n"
    "        [ -z \"$asked\" ] || kill -TERM \"$pid\"\n"
    "        wait \"$pid\"\n"
    "        while kill -0 \"$pid\" 2>/dev/null; do wait \"$pid\"; done\n"
    "        wait \"$pid\"\n"
    "        status=$?\n"
    "        case $status in\n"
    "        0 | 2 | 6 | 7) exit $status ;;\n"
    "        126 | 127) exit 2 ;; # there is no such program\n"
    "        esac\n"
    "        [ -z \"$asked\" ] || exit $status\n"
    "        echo \"host.sh: $1 ended with $status, and is started again in 5 s\" >&2\n"
    "        sleep 5 &\n"
    "        pid=$!\n"
    "        wait \"$pid\"\n"
    "    done\n"
    "}\n"
    "\n"
    "end() {\n"
    "    asked=1\n"
    "    [ -z \"$loop\" ] || { kill -TERM \"$loop\" 2>/dev/null; wait \"$loop\"; }\n"
    "    [ -z \"$ranks\" ] || kill -TERM $ranks 2>/dev/null\n"
    "}\n"
    "trap end TERM INT\n"
    "\n";

static const char finish[] = "# The first failure ends the others.\n"
                             "while :; do\n"
                             "    wait -n\n"
                             "    ended=$?\n"
                             "    [ $ended != 127 ] || break # none is left\n"
                             "    if [ $ended != 0 ] && [ -z \"$asked\" ]; then\n"
                             "        status=$ended\n"
                             "        end\n"
                             "    fi\n"
                             "done\n"
                             "exit $status\n";

static void put_ranks(const struct dp_region *region, struct lh_buf *out)
{
    unsigned ranks = 1 + dp_region_helpers(region);
    dp_put(out, "case $host in\n");
    for (unsigned k = 0; k < ranks; k++) {
        unsigned host = dp_region_host(region, k);
        bool first = !k || dp_region_host(region, k - 1) != host;
        bool last = k + 1 == ranks || dp_region_host(region, k + 1) != host;
        if (first) dp_put(out, "%u) names=\"", host);
        dp_put(out, first ? "" : " ");
        dp_put(out, "%s-$worker", region->name);
        if (k) dp_put(out, ".%u", k);
        if (last) dp_put(out, "\" ;;\n");
    }
    dp_put(out, "*) echo \"host.sh: no host $host\" >&2; exit 2 ;;\nesac\n");
}

// The command beside each of the region's workers.
static LH_MUST lh_err put_loops(const struct dp_render *r, unsigned at, const char *settings,
                                struct lh_buf *out)
{
    const struct dp_up *up = r->up;
    const struct dp_region *region = &up->t->region[at];
    struct dp_words words;
    if (!region->command) return LH_OK;
    dp_put(out, "case $worker in\n");
    for (unsigned w = 0; w < region->workers; w++) {
        char name[sizeof up->node[0].name];
        snprintf(name, sizeof name, "%s-%u", region->name, w);
        const struct dp_placeholder list[] =
            DP_COMMAND_PLACEHOLDERS(name, region->name, up->dir, up->data);
        words = (struct dp_words){.count = 0};
        LH_TRY(dp_words_fill(region->command, list, &words));
        dp_put(out, "%u) set --", w);
        for (unsigned i = 0; i < words.count; i++) {
            dp_put(out, " ");
            dp_render_quote(out, words.at[i]);
        }
        dp_put(out, " ;;\n");
    }
    dp_put(out,
           "esac\n"
           "keep longhaul run --config \"%s/%s-$worker.yaml\" --tend -- \"$@\" &\nloop=$!\n",
           settings, region->name);
    return LH_OK;
}

lh_err dp_render_host(const struct dp_render *r, unsigned region, const char *settings,
                      struct lh_buf *out)
{
    const struct dp_region *is = &r->up->t->region[region];
    dp_put(out,
           "#!/bin/bash\n# host.sh WORKER [HOST]: the processes of one host of worker "
           "%s-WORKER.\n# Written by `longhaul %s` from %s.\n",
           is->name, r->up->written_by, r->flags.topology);
    dp_put(out, "%s", start);
    put_ranks(is, out);
    const char *more = "";
    if (is->hosts > 1) more = " --set \"ranks.leader=$LEADER\"";
    if (is->hosts > 1 && is->reduce == WK_REDUCE_TCP)
        more = " --set \"ranks.leader=$LEADER\" --set \"ranks.address=$ADDRESS\"";
    dp_put(out,
           "for name in $names; do\n"
           "    keep longhaul-worker --config \"%s/$name.yaml\"%s &\n"
           "    ranks=\"$ranks $!\"\n"
           "done\n",
           settings, more);
    LH_TRY(put_loops(r, region, settings, out));
    dp_put(out, "\n%s", finish);
    return lh_buf_err(out);
}
