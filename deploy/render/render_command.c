// longhaul render: a topology as manifests of Kubernetes, or batch scripts of Slurm.
#include <string.h>

#include "common/base/check.h"
#include "deploy/render/render.h"
#include "deploy/tool/commands.h"

#define DATA_HELP "store of units.json and the token files, instead of folders"

// Reads the flags; *help: nothing is left to do.
static LH_MUST lh_err read(const struct dp_usage *usage, int argc, char **argv, struct dp_render *r,
                           bool *help)
{
    struct dp_texts rest;
    LH_TRY(dp_flags(usage, argc, argv, &rest, help));
    if (*help) return LH_OK;
    if (rest.count != 1) return lh_fail(LH_ERR_INVALID, "usage: %s", usage->line);
    r->flags.topology = rest.at[0];
    if (!r->flags.out) return lh_fail(LH_ERR_INVALID, "--out DIR is missing: the folder to write");
    return LH_OK;
}

static lh_err slurm(int argc, char **argv)
{
    struct dp_render r = {.up = NULL};
    const struct dp_flag flags[] = {
        {"--out", DP_TEXT, &r.flags.out, "DIR", "folder to write; files of its own stay"},
        {"--coordinator", DP_TEXT, &r.flags.coordinator, "HOST:PORT[,HOST:PORT]",
         "address at which the workers reach the coordinator, or those of a pair"},
        {"--data", DP_TEXT, &r.flags.data, "s3://BUCKET/PREFIX", DATA_HELP},
    };
    const struct dp_usage usage = {
        "longhaul render slurm TOPOLOGY --out DIR --coordinator HOST:PORT",
        "Writes DIR/REGION for each region: REGION.sbatch, which starts its workers and the\n"
        "processes that train beside them, and their settings. Coordinator and servers run\n"
        "elsewhere. DIR/files has the model's manifest and initial parameters for them.",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(read(&usage, argc, argv, &r, &help));
    if (help) return LH_OK;
    if (!r.flags.coordinator)
        return lh_fail(LH_ERR_INVALID, "--coordinator HOST:PORT is missing: workers dial it");
    lh_err err = dp_render_slurm(&r);
    if (!err)
        for (unsigned i = 0; i < r.up->t->regions; i++)
            printf("%s/%s/%s.sbatch\n", r.flags.out, r.up->t->region[i].name,
                   r.up->t->region[i].name);
    dp_render_close(&r);
    return err;
}

static lh_err k8s(int argc, char **argv)
{
    struct dp_render r = {.flags = {.image = "longhaul"}};
    const struct dp_flag flags[] = {
        {"--out", DP_TEXT, &r.flags.out, "DIR", "folder to write; files of its own stay"},
        {"--domain", DP_TEXT, &r.flags.domain, "DOMAIN",
         "domain of the certificates; node NAME is reached at NAME.DOMAIN"},
        {"--image", DP_TEXT, &r.flags.image, "IMAGE",
         "image of the programs (longhaul, from deploy/Containerfile)"},
        {"--data", DP_TEXT, &r.flags.data, "s3://BUCKET/PREFIX", DATA_HELP},
        {"--namespace", DP_TEXT, &r.flags.name_space, "NAMESPACE", "(longhaul-RUN)"},
    };
    const struct dp_usage usage = {
        "longhaul render k8s TOPOLOGY --out DIR --domain DOMAIN [flags]",
        "Writes a kustomize folder for each cluster: DIR/servers has the coordinator and the\n"
        "servers, DIR/regions/REGION a JobSet of the region's workers and the processes that\n"
        "train beside them. DIR/files has the model's files, for the clusters' volumes.",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(read(&usage, argc, argv, &r, &help));
    if (help) return LH_OK;
    if (!r.flags.domain)
        return lh_fail(LH_ERR_INVALID, "--domain DOMAIN is missing: workers dial names in it");
    lh_err err = dp_render_k8s(&r);
    if (!err) printf("%s/servers\n", r.flags.out);
    for (unsigned i = 0; !err && i < r.up->t->regions; i++)
        printf("%s/regions/%s\n", r.flags.out, r.up->t->region[i].name);
    dp_render_close(&r);
    return err;
}

lh_err dp_cmd_render(int argc, char **argv)
{
    static const struct dp_usage usage = {
        "longhaul render k8s | slurm TOPOLOGY [flags]",
        "k8s     write a kustomize folder for each Kubernetes cluster\n"
        "slurm   write a batch script for each region\n\n"
        "`longhaul render VERB --help` lists the flags of each. TOPOLOGY is a file for\n"
        "`longhaul up`; its link and links are ignored.",
        NULL, 0};
    static const struct dp_verb verbs[] = {
        {"k8s", k8s},
        {"slurm", slurm},
    };
    return dp_verbs(&usage, verbs, LH_COUNT(verbs), argc, argv);
}
