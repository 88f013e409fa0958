// A batch script for each region. See render.h.
//
// OUT/REGION/ is the folder from which the region submits: REGION.sbatch, host.sh, a settings file
// of each rank, model.json. All paths are relative to it, and it is shared by the job's hosts.
//
// 1. Each worker is a job of its own, an element of an array where the region has several: so one
//    that loses its host or its time costs the others nothing.
// 2. The batch script alone gets SIGTERM 120 s before the end of the job's time. It ends its
//    programs in order, and puts the job back into the queue unless the run is over. A job that
//    somebody cancels is not put back: it is not in state RUNNING any more.
#include <string.h>

#include "deploy/render/render.h"
#include "deploy/up/up_dir.h"

enum { WARNING_S = 120 };

static void put_head(const struct dp_render *r, const struct dp_region *region, struct lh_buf *out)
{
    const char *run = r->up->t->run->run;
    dp_put(out, "#!/bin/bash\n");
    dp_put(out, "#SBATCH --job-name=%s-%s\n", run, region->name);
    if (region->workers > 1)
        dp_put(out, "#SBATCH --array=0-%lld\n", (long long)region->workers - 1);
    dp_put(out, "#SBATCH --output=%s-%s.log\n", region->name, region->workers > 1 ? "%a" : "0");
    dp_put(out, "#SBATCH --open-mode=append\n");
    dp_put(out, "#SBATCH --nodes=%lld\n", (long long)region->hosts);
    dp_put(out, "#SBATCH --ntasks-per-node=1\n");
    if (region->gpus)
        dp_put(out, "#SBATCH --gres=gpu:%lld\n",
               (long long)((region->gpus + region->hosts - 1) / region->hosts));
    dp_put(out, "#SBATCH --signal=B:TERM@%d\n#SBATCH --requeue\n", WARNING_S);
    dp_put(out,
           "# A worker of %s in the run %s: `sbatch %s.sbatch`, in this folder.\n"
           "# Written by `longhaul render slurm` from %s.\n# Flags of sbatch add what "
           "your cluster wants: --partition, --time, --account, --cpus-per-task, --mem.\n",
           region->name, run, region->name, r->flags.topology);
}

static const char rest[] = "job=$!\n"
                           "[ -z \"$asked\" ] || kill -TERM $job\n"
                           "wait $job\n"
                           "while kill -0 $job 2>/dev/null; do wait $job; done\n"
                           "wait $job\n"
                           "status=$?\n"
                           "if [ -n \"$asked\" ] && [ ! -e \"$name/final.weights\" ] &&\n"
                           "    [ \"$(squeue -h -j \"$SLURM_JOB_ID\" -o %T)\" = RUNNING ]; then\n"
                           "    scontrol requeue \"$SLURM_JOB_ID\"\n"
                           "fi\n"
                           "exit $status\n";

static void put_job(const struct dp_region *region, struct lh_buf *out)
{
    dp_put(out,
           "set -u\ncd \"$SLURM_SUBMIT_DIR\" || exit 2\n"
           "worker=%s name=%s-$worker asked= job=\n"
           "trap 'asked=1; [ -z \"$job\" ] || kill -TERM \"$job\"' TERM\n",
           region->workers > 1 ? "$SLURM_ARRAY_TASK_ID" : "0", region->name);
    if (region->gpus && region->hosts > 1)
        dp_put(out, "# The interface over which NCCL talks between hosts; it is neither encrypted "
                    "nor authenticated.\n"
                    "export NCCL_SOCKET_IFNAME=\"${NCCL_SOCKET_IFNAME:-^lo,docker0}\"\n");
    if (region->hosts > 1)
        dp_put(out,
               "# The ranks meet at the first host.\n"
               "LEADER=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1):%d\"\n"
               "export LEADER\n"
               "srun --ntasks-per-node=1 --kill-on-bad-exit=0 bash -c '\n"
               "    ADDRESS=$(getent ahostsv4 \"$(hostname)\" | cut -d \" \" -f 1 | head -n 1)\n"
               "    export ADDRESS\n"
               "    exec bash host.sh \"$0\" \"$SLURM_NODEID\"' \"$worker\" &\n",
               DP_RENDER_RANKS_PORT);
    else
        dp_put(out, "bash host.sh \"$worker\" &\n");
    dp_put(out, "%s", rest);
}

static LH_MUST lh_err write_job(const struct dp_render *r, unsigned at)
{
    const struct dp_region *region = &r->up->t->region[at];
    char name[80];
    struct lh_buf text = lh_buf(1 << 16), host = lh_buf(1 << 20);
    snprintf(name, sizeof name, "%s.sbatch", region->name);
    put_head(r, region, &text);
    put_job(region, &text);
    lh_err err = dp_render_host(r, at, ".", &host);
    if (!err) err = dp_render_write(r, region->name, name, &text);
    if (!err) err = dp_render_write(r, region->name, "host.sh", &host);
    lh_buf_free(&host);
    lh_buf_free(&text);
    return err;
}

// The files of a region that do not depend on the others.
static LH_MUST lh_err write_model(const struct dp_render *r, const char *folder)
{
    struct lh_buf json = lh_buf(64 << 20);
    lh_err err = lh_manifest_write(&r->up->manifest, &json);
    if (!err) err = dp_render_write(r, folder, "model.json", &json);
    lh_buf_free(&json);
    return err;
}

static LH_MUST lh_err place(struct dp_render *r)
{
    struct dp_up *up = r->up;
    const char *at = r->flags.coordinator;
    LH_TRY(lh_addresses_check("--coordinator", at));
    LH_TRY(dp_path(up->dir, "."));
    LH_TRY(dp_render_data(r, "data"));
    LH_TRY(dp_path(up->places.secrets, "secrets"));
    LH_TRY(dp_path(up->places.files, "."));
    LH_TRY(dp_path(up->places.budgets, "."));
    LH_TRY(dp_dir_list(up));
    int n = snprintf(up->places.coordinators, sizeof up->places.coordinators, "%s", at);
    if (n >= (int)sizeof up->places.coordinators)
        return lh_fail(LH_ERR_INVALID, "--coordinator %.60s...: the address is too long", at);
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        bool apart = up->t->region[node->region].hosts > 1;
        LH_TRY(dp_path(node->dir, "%s", node->name));
        if (node->kind < DP_WORKER || !apart) continue;
        // host.sh names the real ones, which are known once the job runs.
        snprintf(node->address, sizeof node->address, "127.0.0.1:%d", DP_RENDER_RANKS_PORT);
        snprintf(node->host, sizeof node->host, "127.0.0.1");
    }
    return LH_OK;
}

lh_err dp_render_slurm(struct dp_render *r)
{
    LH_TRY(dp_render_open(r, "render slurm"));
    LH_TRY(dp_render_no_region(r, "files"));
    LH_TRY(place(r));
    const struct dp_topology *t = r->up->t;
    LH_TRY(dp_render_files(r));
    for (unsigned i = 0; i < t->regions; i++) {
        LH_TRY(dp_render_settings(r, i, t->region[i].name));
        LH_TRY(write_job(r, i));
        LH_TRY(write_model(r, t->region[i].name));
    }
    return LH_OK;
}
