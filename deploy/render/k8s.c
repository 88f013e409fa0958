// The servers' cluster, and what a rendering for Kubernetes begins with. See k8s.h.
//
// 1. Each server is a StatefulSet of one pod with a volume of its own: it has settings, a
//    certificate and shards of its own, and it comes back to its own disk.
// 2. A Service gives out the address of a pod that is not ready, too: a server that lost its disk
//    is not ready before its followers have reached it.
#include "deploy/render/k8s.h"

#include <string.h>

#include "common/objects/address.h"
#include "deploy/up/up_dir.h"
#include "deploy/up/up_store.h"

#define LABELS "app.kubernetes.io/"

// ---------------------------------------------------------------- names

// A name as a DNS label: dots and underlines become hyphens.
static LH_MUST lh_err label_of(const struct dp_render *r, const char *name, char *out)
{
    size_t n = strlen(name);
    snprintf(out, DP_RENDER_LABEL_BYTES, "%s", name);
    for (char *at = out; *at; at++)
        if (*at == '.' || *at == '_') *at = '-';
    if (n < DP_RENDER_LABEL_BYTES && out[0] >= 'a' && out[0] <= 'z' && out[n - 1] != '-')
        return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "%s: Kubernetes takes no object named %.60s: a name begins with a letter, ends "
                   "with a letter or a digit, and has at most %d characters",
                   r->flags.topology, name, DP_RENDER_LABEL_BYTES - 1);
}

static LH_MUST lh_err refuse_same(const struct dp_render *r, const char *a, const char *b)
{
    return lh_fail(LH_ERR_CONFIG,
                   "%s: %s and %s would have one name in Kubernetes, where . and _ become -: "
                   "rename one of them",
                   r->flags.topology, a, b);
}

static LH_MUST lh_err label_nodes(struct dp_render *r)
{
    const struct dp_up *up = r->up;
    const struct dp_topology *t = up->t;
    char label[DP_REGIONS_MAX][DP_RENDER_LABEL_BYTES];
    for (unsigned i = 0; i < t->regions; i++) {
        LH_TRY(label_of(r, t->region[i].name, label[i]));
        for (unsigned k = 0; k < i; k++)
            if (!strcmp(label[i], label[k]))
                return refuse_same(r, t->region[k].name, t->region[i].name);
    }
    for (unsigned i = 0; i < up->nodes; i++) {
        LH_TRY(label_of(r, up->node[i].name, r->label[i]));
        for (unsigned k = 0; k < i && up->node[i].kind < DP_WORKER; k++)
            if (!strcmp(r->label[i], r->label[k]))
                return refuse_same(r, up->node[k].name, up->node[i].name);
    }
    return LH_OK;
}

// A domain and a namespace go into manifests as they are.
static LH_MUST lh_err check_word(const char *flag, const char *value, const char *more, size_t max)
{
    char set[64];
    size_t n = strlen(value);
    snprintf(set, sizeof set, "abcdefghijklmnopqrstuvwxyz0123456789-%s", more);
    if (n && n <= max && strspn(value, set) == n && value[0] != '-' && value[n - 1] != '-' &&
        value[0] != '.' && value[n - 1] != '.')
        return LH_OK;
    return lh_fail(LH_ERR_INVALID, "%s %.80s: expected 1 to %zu of a-z 0-9 -%s", flag, value, max,
                   more[0] ? " ." : "");
}

static LH_MUST lh_err check_flags(struct dp_render *r)
{
    char label[DP_RENDER_LABEL_BYTES];
    LH_TRY(check_word("--domain", r->flags.domain, ".", 120));
    if (r->flags.name_space) {
        LH_TRY(check_word("--namespace", r->flags.name_space, "", 63));
        snprintf(r->name_space, sizeof r->name_space, "%s", r->flags.name_space);
    } else {
        LH_TRY(label_of(r, r->up->t->run->run, label));
        snprintf(r->name_space, sizeof r->name_space, "longhaul-%s", label);
    }
    for (const char *at = r->flags.image; *at; at++)
        if (*at <= ' ' || strchr("\"'\\#{}[],", *at))
            return lh_fail(LH_ERR_INVALID, "--image %.200s: no name of an image", r->flags.image);
    return LH_OK;
}

static LH_MUST lh_err place(struct dp_render *r)
{
    struct dp_up *up = r->up;
    LH_TRY(dp_path(up->dir, DP_K8S_STATE));
    LH_TRY(dp_render_data(r, DP_K8S_FILES));
    LH_TRY(dp_path(up->places.secrets, DP_K8S_SECRETS));
    LH_TRY(dp_path(up->places.files, DP_K8S_FILES));
    LH_TRY(dp_path(up->places.budgets, DP_K8S_STATE));
    LH_TRY(dp_path(up->places.etcd, DP_K8S_ETCD));
    snprintf(up->places.http, sizeof up->places.http, "0.0.0.0:%d", DP_K8S_HTTP_PORT);
    LH_TRY(dp_dir_list(up));
    LH_TRY(label_nodes(r));
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        LH_TRY(dp_path(node->dir, DP_K8S_STATE "/%s", node->name));
        if (node->kind < DP_WORKER) {
            snprintf(node->listen, sizeof node->listen, "0.0.0.0:%d", DP_RENDER_PORT);
            int n = snprintf(node->address, sizeof node->address, "%s.%s:%d", r->label[i],
                             r->flags.domain, DP_RENDER_PORT);
            if (n >= (int)sizeof node->address)
                return lh_fail(LH_ERR_INVALID, "--domain %.80s...: too long", r->flags.domain);
        } else if (up->t->region[node->region].hosts > 1) { // host.sh names the real ones
            snprintf(node->address, sizeof node->address, "127.0.0.1:%d", DP_RENDER_RANKS_PORT);
            snprintf(node->host, sizeof node->host, "127.0.0.1");
        }
    }
    return LH_OK;
}

// ---------------------------------------------------------------- the servers' cluster

static void put_service(const struct dp_render *r, const char *label, struct lh_buf *out)
{
    dp_k8s_object(out, "v1", "Service", label);
    dp_k8s_put(out, 0,
               "  annotations:\n"
               "    external-dns.alpha.kubernetes.io/hostname: %s.%s\n"
               "spec:\n"
               "  type: LoadBalancer\n"
               "  publishNotReadyAddresses: true\n"
               "  selector: {" LABELS "name: %s}\n"
               "  ports:\n"
               "    - {name: longhaul, port: %d, targetPort: longhaul}\n",
               label, r->flags.domain, label, DP_RENDER_PORT);
}

// Two coordinators on one host would be lost together.
static void put_apart(struct lh_buf *out)
{
    dp_k8s_put(out, 6,
               "affinity:\n"
               "  podAntiAffinity:\n"
               "    preferredDuringSchedulingIgnoredDuringExecution:\n"
               "      - weight: 100\n"
               "        podAffinityTerm:\n"
               "          topologyKey: kubernetes.io/hostname\n"
               "          labelSelector: {matchLabels: {" LABELS "component: coordinator}}\n");
}

static void put_template(const struct dp_render *r, unsigned at, struct lh_buf *out)
{
    const struct dp_node *node = &r->up->node[at];
    const char *label = r->label[at];
    bool server = node->kind == DP_SERVER;
    dp_k8s_put(out, 2,
               "selector:\n"
               "  matchLabels: {" LABELS "name: %s}\n"
               "template:\n"
               "  metadata:\n"
               "    labels: {" LABELS "name: %s, " LABELS "component: %s}\n"
               "  spec:\n",
               label, label, server ? "server" : "coordinator");
    bool stores =
        server ? lh_objects_is(r->up->t->server_base->checkpoint.store) : dp_data_is_stored(r->up);
    bool pair = !server && dp_topology_pair(r->up->t);
    dp_k8s_pod(out, 6);
    if (stores) dp_k8s_account(out, 6);
    if (pair) put_apart(out);
    dp_k8s_put(out, 6,
               "containers:\n"
               "  - name: longhaul\n"
               "    image: %s\n"
               "    command: [longhaul-server, --config, " DP_K8S_SETTINGS "/%s.yaml]\n",
               r->flags.image, node->name);
    if (stores) dp_k8s_store(out, 10);
    dp_k8s_container(out, 10, true, pair);
    dp_k8s_memory(out, 10, server ? r->up->plan.server_memory_bytes : 0, 0);
    dp_k8s_mounts(out, 10, NULL);
    bool etcd = pair && r->up->t->server_base->coordinator.store_secrets[0];
    if (etcd) dp_k8s_put(out, 10, "  - {name: etcd, mountPath: " DP_K8S_ETCD ", readOnly: true}\n");
    dp_k8s_volumes(out, 6, node, label);
    if (etcd)
        dp_k8s_put(out, 8,
                   "- name: etcd\n  secret: {secretName: longhaul-etcd, defaultMode: 0440}\n");
}

static void put_coordinator(const struct dp_render *r, unsigned at, struct lh_buf *out)
{
    const char *label = r->label[at];
    char claim[DP_RENDER_LABEL_BYTES + 8];
    snprintf(claim, sizeof claim, "%s-state", label);
    put_service(r, label, out);
    dp_k8s_object(out, "apps/v1", "Deployment", label);
    dp_k8s_put(out, 0, "spec:\n  replicas: 1\n  strategy: {type: Recreate}\n");
    put_template(r, at, out);
    dp_k8s_put(out, 8, "- name: state\n  persistentVolumeClaim: {claimName: %s}\n", claim);
    dp_k8s_claim(out, claim, "ReadWriteOnce", 0);
}

static void put_coordinators(const struct dp_render *r, struct lh_buf *out)
{
    bool pair = dp_topology_pair(r->up->t);
    dp_k8s_head(r, out,
                pair ? "Two coordinators, whose state is in etcd; one leads."
                     : "The coordinator: one process, whose store lies on a volume.");
    for (unsigned i = 0; i < r->up->nodes; i++)
        if (r->up->node[i].kind == DP_COORDINATOR) put_coordinator(r, i, out);
    if (!pair) return;
    dp_k8s_object(out, "policy/v1", "PodDisruptionBudget", "coordinators");
    dp_k8s_put(out, 0,
               "spec:\n"
               "  maxUnavailable: 1\n"
               "  selector:\n"
               "    matchLabels: {" LABELS "component: coordinator}\n");
}

static void put_server(const struct dp_render *r, unsigned at, struct lh_buf *out)
{
    put_service(r, r->label[at], out);
    dp_k8s_object(out, "apps/v1", "StatefulSet", r->label[at]);
    dp_k8s_put(out, 0, "spec:\n  serviceName: %s\n  replicas: 1\n", r->label[at]);
    put_template(r, at, out);
    dp_k8s_put(out, 2,
               "volumeClaimTemplates:\n"
               "  - metadata: {name: state}\n"
               "    spec:\n"
               "      accessModes: [ReadWriteOnce]\n"
               "      resources: {requests: {storage: %lluGi}}\n",
               (unsigned long long)(r->up->plan.server_disk_bytes / (1ull << 30)) + 1);
}

static void put_servers(const struct dp_render *r, struct lh_buf *out)
{
    dp_k8s_head(r, out, "The servers, and that a drain of nodes takes one of them at a time.");
    dp_k8s_object(out, "policy/v1", "PodDisruptionBudget", "servers");
    dp_k8s_put(out, 0,
               "spec:\n"
               "  maxUnavailable: 1\n"
               "  selector:\n"
               "    matchLabels: {" LABELS "component: server}\n");
    for (unsigned i = 0; i < r->up->nodes; i++)
        if (r->up->node[i].kind == DP_SERVER) put_server(r, i, out);
}

static void put_network(const struct dp_render *r, struct lh_buf *out)
{
    dp_k8s_head(r, out, "Who reaches the servers: all on their port, under mutual TLS.");
    dp_k8s_object(out, "networking.k8s.io/v1", "NetworkPolicy", "servers");
    dp_k8s_put(out, 0,
               "spec:\n"
               "  podSelector: {}\n"
               "  policyTypes: [Ingress]\n"
               "  ingress:\n"
               "    - ports: [{port: %d, protocol: TCP}]\n"
               "    - from: [{podSelector: {}}]\n"
               "      ports: [{port: %d, protocol: TCP}]\n",
               DP_RENDER_PORT, DP_K8S_HTTP_PORT);
}

static void put_kustomization(const struct dp_render *r, struct lh_buf *out)
{
    dp_k8s_kustomization(r, out, "The servers' cluster.");
    dp_k8s_put(out, 0, "  - coordinator.yaml\n  - servers.yaml\n");
    dp_k8s_generator(out);
    for (unsigned i = 0; i < r->up->nodes; i++)
        if (r->up->node[i].kind < DP_WORKER)
            dp_put(out, "      - settings/%s.yaml\n", r->up->node[i].name);
}

static LH_MUST lh_err write_servers(struct dp_render *r)
{
    struct lh_buf coordinator = lh_buf(1 << 20), servers = lh_buf(1 << 20);
    struct lh_buf network = lh_buf(1 << 16), certificates = lh_buf(1 << 20);
    struct lh_buf kustomization = lh_buf(1 << 16);
    put_coordinators(r, &coordinator);
    put_servers(r, &servers);
    put_network(r, &network);
    put_kustomization(r, &kustomization);
    dp_k8s_head(r, &certificates, "What `longhaul certs issue` makes, by an Issuer of yours.");
    for (unsigned i = 0; i < r->up->nodes; i++)
        if (r->up->node[i].kind < DP_WORKER)
            dp_k8s_certificate(r, &r->up->node[i], r->label[i], &certificates);
    lh_err err = dp_render_write(r, "servers", "coordinator.yaml", &coordinator);
    if (!err) err = dp_render_write(r, "servers", "servers.yaml", &servers);
    if (!err) err = dp_render_write(r, "servers", "network.yaml", &network);
    if (!err) err = dp_render_write(r, "servers", "certificates.yaml", &certificates);
    if (!err) err = dp_render_write(r, "servers", "kustomization.yaml", &kustomization);
    bool stores =
        dp_data_is_stored(r->up) || lh_objects_is(r->up->t->server_base->checkpoint.store);
    if (!err) err = dp_k8s_storage(r, "servers", stores);
    if (!err) err = dp_render_settings(r, DP_REGIONS_MAX, "servers/settings");
    lh_buf_free(&kustomization);
    lh_buf_free(&certificates);
    lh_buf_free(&network);
    lh_buf_free(&servers);
    lh_buf_free(&coordinator);
    return err;
}

lh_err dp_render_k8s(struct dp_render *r)
{
    LH_TRY(dp_render_open(r, "render k8s"));
    LH_TRY(check_flags(r));
    LH_TRY(place(r));
    LH_TRY(dp_render_files(r));
    LH_TRY(write_servers(r));
    for (unsigned i = 0; i < r->up->t->regions; i++) LH_TRY(dp_k8s_region(r, i));
    return LH_OK;
}
