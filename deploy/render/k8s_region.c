// A region's cluster: one JobSet, and what its pods need. See k8s.h.
//
// 1. Each worker has two kinds of Jobs: worker-W, one pod on the worker's own volume, which holds
//    its state, and with several hosts ranks-W, the pods of its other hosts. Those hold nothing
//    that outlives them.
// 2. No connection comes in, but between pods of the region that are hosts of one worker.
#include <string.h>

#include "deploy/render/k8s.h"
#include "deploy/up/up_store.h"
#include "worker/ranks/reduce.h"

#define LABELS "app.kubernetes.io/"

// The region being written, for the functions below.
struct region {
    const struct dp_render *r;
    const struct dp_region *is;
    unsigned at;
    char label[DP_RENDER_LABEL_BYTES];
};

static const struct dp_node *worker_of(const struct region *g, unsigned worker, const char **label)
{
    const struct dp_up *up = g->r->up;
    unsigned i = 0;
    while (up->node[i].kind != DP_WORKER || up->node[i].region != g->at ||
           up->node[i].index != worker)
        i++;
    *label = g->r->label[i];
    return &up->node[i];
}

static void put_environment(const struct region *g, unsigned worker, struct lh_buf *out)
{
    bool apart = g->is->hosts > 1;
    dp_k8s_put(out, 18, "env:\n  - {name: HOME, value: /tmp}\n");
    if (apart)
        dp_k8s_put(out, 18,
                   "  - {name: LEADER, value: \"%s-worker-%u-0-0.%s:%d\"}\n"
                   "  - name: ADDRESS\n"
                   "    valueFrom: {fieldRef: {fieldPath: status.podIP}}\n",
                   g->label, worker, g->label, DP_RENDER_RANKS_PORT);
    if (g->is->gpus)
        dp_k8s_put(out, 18,
                   "  - {name: NCCL_SOCKET_IFNAME, value: %s}\n"
                   "  - {name: NCCL_DEBUG, value: WARN}\n",
                   apart ? "eth0" : "lo");
}

// The pods of one of the worker's Jobs. `first`: that of rank 0.
static void put_job(const struct region *g, unsigned worker, bool first, struct lh_buf *out)
{
    const char *label;
    const struct dp_node *node = worker_of(g, worker, &label);
    long long pods = first ? 1 : (long long)g->is->hosts - 1;
    long long gpus = (g->is->gpus + g->is->hosts - 1) / g->is->hosts;
    bool elsewhere = g->is->data[0] == '/';
    dp_k8s_put(out, 4,
               "- name: %s-%u\n"
               "  replicas: 1\n"
               "  template:\n"
               "    spec:\n"
               "      completionMode: Indexed\n"
               "      completions: %lld\n"
               "      parallelism: %lld\n"
               "      backoffLimit: 2147483647\n"
               "      template:\n"
               "        metadata:\n"
               "          labels: {" LABELS "name: %s, " LABELS "component: worker}\n"
               "        spec:\n"
               "          restartPolicy: OnFailure\n",
               first ? "worker" : "ranks", worker, pods, pods, g->label);
    bool stores = dp_data_is_stored(g->r->up);
    dp_k8s_pod(out, 14);
    if (stores) dp_k8s_account(out, 14);
    dp_k8s_put(out, 14, "containers:\n  - name: longhaul\n    image: %s\n", g->r->flags.image);
    if (first)
        dp_k8s_put(out, 18, "command: [bash, " DP_K8S_SETTINGS "/host.sh, \"%u\", \"0\"]\n",
                   worker);
    else
        dp_k8s_put(out, 18,
                   "command: [bash, -c, \"exec bash " DP_K8S_SETTINGS
                   "/host.sh %u $((JOB_COMPLETION_INDEX + 1))\"]\n",
                   worker);
    put_environment(g, worker, out);
    if (stores) dp_k8s_store(out, 18);
    if (first)
        dp_k8s_container(out, 18, false, false);
    else
        dp_k8s_confine(out, 18);
    dp_k8s_memory(out, 18, g->r->up->plan.worker_memory_bytes, gpus);
    dp_k8s_mounts(out, 18, elsewhere ? g->is->data : NULL);
    if (g->is->ranks > 1) dp_k8s_put(out, 18, "  - {name: shm, mountPath: /dev/shm}\n");
    dp_k8s_volumes(out, 14, node, label);
    if (first)
        dp_k8s_put(out, 16, "- name: state\n  persistentVolumeClaim: {claimName: %s-state}\n",
                   label);
    else
        dp_k8s_put(out, 16, "- name: state\n  emptyDir: {}\n");
    if (g->is->ranks > 1) dp_k8s_put(out, 16, "- name: shm\n  emptyDir: {medium: Memory}\n");
}

static void put_jobset(const struct region *g, struct lh_buf *out)
{
    dp_k8s_head(g->r, out, "The region's workers.");
    dp_k8s_object(out, "jobset.x-k8s.io/v1alpha2", "JobSet", g->label);
    dp_k8s_put(out, 0,
               "spec:\n"
               "  network: {enableDNSHostnames: true, subdomain: %s, publishNotReadyAddresses: "
               "true}\n"
               "  replicatedJobs:\n",
               g->label);
    for (unsigned w = 0; w < g->is->workers; w++) {
        put_job(g, w, true, out);
        if (g->is->hosts > 1) put_job(g, w, false, out);
    }
    for (unsigned w = 0; w < g->is->workers; w++) {
        const char *label;
        char name[DP_RENDER_LABEL_BYTES + 8];
        (void)worker_of(g, w, &label);
        snprintf(name, sizeof name, "%s-state", label);
        dp_k8s_claim(out, name, "ReadWriteOnce", g->r->up->plan.worker_disk_bytes);
    }
}

static void put_network(const struct region *g, struct lh_buf *out)
{
    dp_k8s_head(g->r, out, "Outbound only: names, the coordinator and the servers.");
    dp_k8s_object(out, "networking.k8s.io/v1", "NetworkPolicy", g->label);
    dp_k8s_put(out, 0,
               "spec:\n"
               "  podSelector: {}\n"
               "  policyTypes: [Ingress, Egress]\n");
    if (g->is->hosts > 1)
        dp_k8s_put(out, 2, "ingress:\n  - from: [{podSelector: {}}] # ranks of other hosts\n");
    else
        dp_k8s_put(out, 2, "ingress: []\n");
    dp_k8s_put(out, 2,
               "egress:\n"
               "  - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]\n"
               "  - ports: [{port: %d, protocol: TCP}]\n",
               DP_RENDER_PORT);
    if (dp_data_is_stored(g->r->up))
        dp_k8s_put(out, 2, "  - ports: [{port: 443, protocol: TCP}] # the store of the data\n");
    if (g->is->hosts > 1) dp_k8s_put(out, 2, "  - to: [{podSelector: {}}]\n");
}

static void put_kustomization(const struct region *g, struct lh_buf *out)
{
    const struct dp_up *up = g->r->up;
    dp_k8s_kustomization(g->r, out, "A region's cluster.");
    dp_k8s_put(out, 0, "  - workers.yaml\n");
    dp_k8s_generator(out);
    dp_k8s_put(out, 0, "      - settings/host.sh\n");
    for (unsigned i = 0; i < up->nodes; i++)
        if ((up->node[i].kind == DP_WORKER || up->node[i].kind == DP_RANK) &&
            up->node[i].region == g->at)
            dp_put(out, "      - settings/%s.yaml\n", up->node[i].name);
}

static LH_MUST lh_err write_all(const struct region *g, struct dp_render *r, const char *folder,
                                const char *settings)
{
    struct lh_buf jobset = lh_buf(4 << 20), network = lh_buf(1 << 16);
    struct lh_buf certificates = lh_buf(1 << 20), kustomization = lh_buf(1 << 16);
    struct lh_buf host = lh_buf(1 << 20);
    put_jobset(g, &jobset);
    put_network(g, &network);
    put_kustomization(g, &kustomization);
    dp_k8s_head(r, &certificates, "What `longhaul certs issue` makes, by an Issuer of yours.");
    for (unsigned w = 0; w < g->is->workers; w++) {
        const char *label;
        const struct dp_node *node = worker_of(g, w, &label);
        dp_k8s_certificate(r, node, label, &certificates);
    }
    lh_err err = dp_render_host(r, g->at, DP_K8S_SETTINGS, &host);
    if (!err) err = dp_render_write(r, settings, "host.sh", &host);
    if (!err) err = dp_render_write(r, folder, "workers.yaml", &jobset);
    if (!err) err = dp_render_write(r, folder, "network.yaml", &network);
    if (!err) err = dp_render_write(r, folder, "certificates.yaml", &certificates);
    if (!err) err = dp_render_write(r, folder, "kustomization.yaml", &kustomization);
    lh_buf_free(&host);
    lh_buf_free(&kustomization);
    lh_buf_free(&certificates);
    lh_buf_free(&network);
    lh_buf_free(&jobset);
    return err;
}

lh_err dp_k8s_region(struct dp_render *r, unsigned region)
{
    struct region g = {.r = r, .is = &r->up->t->region[region], .at = region};
    char folder[64], settings[80];
    snprintf(g.label, sizeof g.label, "%s", g.is->name);
    for (char *at = g.label; *at; at++)
        if (*at == '.' || *at == '_') *at = '-';
    if (g.is->data[0] && g.is->data[0] != '/')
        return lh_fail(LH_ERR_CONFIG,
                       "%s: regions.%s.data: %s is no absolute path; in a pod the region's files "
                       "are mounted there",
                       r->flags.topology, g.is->name, g.is->data);
    snprintf(folder, sizeof folder, "regions/%s", g.is->name);
    snprintf(settings, sizeof settings, "%s/settings", folder);
    LH_TRY(write_all(&g, r, folder, settings));
    LH_TRY(dp_k8s_storage(r, folder, dp_data_is_stored(r->up)));
    return dp_render_settings(r, region, settings);
}
