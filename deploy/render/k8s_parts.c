// Pieces of manifests that servers, the coordinator and workers share. See k8s.h.
#include "deploy/render/k8s.h"

#include <stdarg.h>
#include <string.h>

#include "common/security/certs.h"

#define ACCOUNT "longhaul"

void dp_k8s_put(struct lh_buf *out, unsigned indent, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *line = text, *end; *line; line = end) {
        size_t n = strcspn(line, "\n");
        end = line + n + (line[n] == '\n');
        dp_put(out, "%*s%.*s\n", n ? (int)indent : 0, "", (int)n, line);
    }
}

void dp_k8s_head(const struct dp_render *r, struct lh_buf *out, const char *what)
{
    dp_put(out,
           "# %s Not run on a cluster by us.\n"
           "# Written by `longhaul render k8s` from %s.\n",
           what, r->flags.topology);
}

void dp_k8s_object(struct lh_buf *out, const char *version, const char *kind, const char *name)
{
    dp_put(out, "---\napiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n", version, kind, name);
}

void dp_k8s_certificate(const struct dp_render *r, const struct dp_node *node, const char *label,
                        struct lh_buf *out)
{
    struct lh_peer peer = {.role = node->kind == DP_COORDINATOR ? LH_C
                                   : node->kind == DP_SERVER    ? LH_S
                                                                : LH_W};
    char uri[LH_URI_BYTES], name[DP_RENDER_LABEL_BYTES + 8];
    snprintf(peer.domain, sizeof peer.domain, "%s", r->flags.domain);
    snprintf(peer.run, sizeof peer.run, "%s", r->up->t->run->run);
    snprintf(peer.region, sizeof peer.region, "%s", r->up->t->region[node->region].name);
    snprintf(peer.name, sizeof peer.name, "%s", node->name);
    lh_peer_uri(&peer, uri);
    snprintf(name, sizeof name, "%s-tls", label);
    dp_k8s_object(out, "cert-manager.io/v1", "Certificate", name);
    dp_k8s_put(
        out, 0,
        "spec:\n"
        "  secretName: %s\n"
        "  commonName: %s\n"
        "  subject: {organizations: [%s]}\n"
        "  uris: [\"%s\"]\n"
        "  dnsNames: [%s]\n"
        "  usages: [digital signature, server auth, client auth]\n"
        "  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}\n"
        "  duration: 8760h\n"
        "  renewBefore: 720h\n"
        "  issuerRef: {kind: Issuer, name: longhaul}\n",
        name, node->name, r->flags.domain, uri, LH_CERTS_DNS);
}

void dp_k8s_claim(struct lh_buf *out, const char *name, const char *mode, double bytes)
{
    dp_k8s_object(out, "v1", "PersistentVolumeClaim", name);
    dp_k8s_put(out, 0,
               "spec:\n"
               "  accessModes: [%s]\n"
               "  resources: {requests: {storage: %lluGi}}\n",
               mode, (unsigned long long)(bytes / (1ull << 30)) + 1);
}

void dp_k8s_pod(struct lh_buf *out, unsigned indent)
{
    dp_k8s_put(out, indent,
               "terminationGracePeriodSeconds: 120\n"
               "automountServiceAccountToken: false\n"
               "securityContext:\n"
               "  runAsNonRoot: true\n"
               "  runAsUser: %d\n"
               "  runAsGroup: %d\n"
               "  fsGroup: %d\n"
               "  seccompProfile: {type: RuntimeDefault}\n",
               DP_K8S_USER, DP_K8S_USER, DP_K8S_USER);
}

void dp_k8s_account(struct lh_buf *out, unsigned indent)
{
    dp_k8s_put(out, indent, "serviceAccountName: " ACCOUNT "\n");
}

void dp_k8s_store(struct lh_buf *out, unsigned indent)
{
    dp_k8s_put(
        out, indent,
        "envFrom:\n  - secretRef: {name: longhaul-store, optional: true} # AWS_ variables\n");
}

void dp_k8s_confine(struct lh_buf *out, unsigned indent)
{
    dp_k8s_put(out, indent,
               "securityContext:\n"
               "  allowPrivilegeEscalation: false\n"
               "  readOnlyRootFilesystem: true\n"
               "  capabilities: {drop: [ALL]}\n");
}

void dp_k8s_container(struct lh_buf *out, unsigned indent, bool serves, bool one_of_two)
{
    dp_k8s_confine(out, indent);
    dp_k8s_put(out, indent, "ports:\n  - {name: http, containerPort: %d}\n", DP_K8S_HTTP_PORT);
    if (serves)
        dp_k8s_put(out, indent, "  - {name: longhaul, containerPort: %d}\n", DP_RENDER_PORT);
    dp_k8s_put(out, indent,
               "startupProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 5, "
               "failureThreshold: 60}\n"
               "livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 10, "
               "failureThreshold: 6}\n"
               "readinessProbe: {httpGet: {path: %s, port: http}, periodSeconds: 5}\n",
               one_of_two ? "/healthz" : "/readyz");
}

void dp_k8s_memory(struct lh_buf *out, unsigned indent, double bytes, long long gpus)
{
    unsigned long long mib = (unsigned long long)(bytes / (1 << 20)) + 128; // the program itself
    dp_k8s_put(out, indent, "resources:\n  requests: {cpu: \"1\", memory: %lluMi}\n", mib);
    if (gpus) dp_k8s_put(out, indent, "  limits: {nvidia.com/gpu: %lld}\n", gpus);
}

void dp_k8s_mounts(struct lh_buf *out, unsigned indent, const char *data)
{
    dp_k8s_put(out, indent,
               "volumeMounts:\n"
               "  - {name: settings, mountPath: " DP_K8S_SETTINGS ", readOnly: true}\n"
               "  - {name: secrets, mountPath: " DP_K8S_SECRETS ", readOnly: true}\n"
               "  - {name: files, mountPath: " DP_K8S_FILES ", readOnly: true}\n"
               "  - {name: state, mountPath: " DP_K8S_STATE "}\n"
               "  - {name: tmp, mountPath: /tmp}\n");
    size_t n = strlen(DP_K8S_FILES);
    bool inside = data && !strncmp(data, DP_K8S_FILES, n) && (!data[n] || data[n] == '/');
    if (data && !inside)
        dp_k8s_put(out, indent, "  - {name: files, mountPath: \"%s\", readOnly: true}\n", data);
}

void dp_k8s_volumes(struct lh_buf *out, unsigned indent, const struct dp_node *node,
                    const char *label)
{
    dp_k8s_put(out, indent,
               "volumes:\n"
               "  - name: settings\n"
               "    configMap: {name: longhaul-settings}\n"
               "  - name: files\n"
               "    persistentVolumeClaim: {claimName: longhaul-files}\n"
               "  - name: tmp\n"
               "    emptyDir: {}\n"
               "  - name: secrets\n"
               "    projected:\n"
               "      defaultMode: 0440\n"
               "      sources:\n"
               "        - secret:\n"
               "            name: %s-tls\n"
               "            items:\n"
               "              - {key: ca.crt, path: ca.pem}\n"
               "              - {key: tls.crt, path: %s.pem}\n"
               "              - {key: tls.key, path: %s.key}\n",
               label, node->name, node->name);
    if (node->kind == DP_COORDINATOR) return;
    dp_k8s_put(out, indent,
               "        - secret:\n"
               "            name: longhaul-job\n"
               "            items:\n"
               "              - {key: job.keys, path: job.keys}\n");
    if (node->kind != DP_SERVER) return;
    dp_k8s_put(out, indent,
               "        - secret:\n"
               "            name: longhaul-signers\n"
               "            items:\n"
               "              - {key: signers, path: signers}\n"
               "        - secret:\n"
               "            name: %s-sign\n"
               "            items:\n"
               "              - {key: %s.sign, path: %s.sign}\n",
               label, node->name, node->name);
}

void dp_k8s_kustomization(const struct dp_render *r, struct lh_buf *out, const char *what)
{
    dp_k8s_head(r, out, what);
    dp_k8s_put(out, 0,
               "apiVersion: kustomize.config.k8s.io/v1beta1\n"
               "kind: Kustomization\n"
               "namespace: %s\n"
               "resources:\n"
               "  - storage.yaml\n"
               "  - network.yaml\n"
               "  - certificates.yaml\n",
               r->name_space);
}

void dp_k8s_generator(struct lh_buf *out)
{
    dp_k8s_put(out, 0,
               "generatorOptions: {disableNameSuffixHash: true}\n"
               "configMapGenerator:\n"
               "  - name: longhaul-settings\n"
               "    files:\n");
}

lh_err dp_k8s_storage(const struct dp_render *r, const char *folder, bool stores)
{
    struct lh_buf out = lh_buf(1 << 16);
    dp_k8s_head(r, &out, "The namespace, and a volume for model.json, weights.bin and the data.");
    dp_k8s_object(&out, "v1", "Namespace", r->name_space);
    dp_k8s_put(&out, 0, "  labels: {pod-security.kubernetes.io/enforce: restricted}\n");
    dp_k8s_claim(&out, "longhaul-files", "ReadWriteMany",
                 10.0 * (1ull << 30) + 2.0 * sizeof(float) * (double)r->up->manifest.values);
    if (stores) {
        dp_k8s_object(&out, "v1", "ServiceAccount", ACCOUNT);
        dp_k8s_put(&out, 0, "automountServiceAccountToken: false\n");
    }
    lh_err err = dp_render_write(r, folder, "storage.yaml", &out);
    lh_buf_free(&out);
    return err;
}
