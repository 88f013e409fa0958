// Manifests of Kubernetes: one kustomize folder for the servers' cluster, one for each region's.
//
//   OUT/servers/         kustomization, Deployment of the coordinator, a StatefulSet of each server
//   OUT/regions/REGION/  kustomization, a JobSet
//   OUT/files/           the model's files, which the operator copies to the clusters' volumes
//
// A file of settings or a script is a key of the ConfigMap longhaul-settings, which kustomize
// makes.
#ifndef DP_RENDER_K8S_H
#define DP_RENDER_K8S_H

#include "deploy/render/render.h"

#define DP_K8S_SETTINGS "/etc/longhaul/settings"
#define DP_K8S_SECRETS "/etc/longhaul/secrets"
#define DP_K8S_ETCD "/etc/longhaul/etcd" // secrets of the coordinators' etcd
#define DP_K8S_FILES "/data"             // the model and token files
#define DP_K8S_STATE "/var/lib/longhaul"

enum { DP_K8S_HTTP_PORT = 9464, DP_K8S_USER = 7700 }; // the user of deploy/Containerfile

// Appends formatted lines, each indented by so many blanks; at most 4 KiB.
void dp_k8s_put(struct lh_buf *out, unsigned indent, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The comment at a file's beginning. `what`: a sentence about the file.
void dp_k8s_head(const struct dp_render *r, struct lh_buf *out, const char *what);
// The beginning of an object; labels come from the kustomization.
void dp_k8s_object(struct lh_buf *out, const char *version, const char *kind, const char *name);
void dp_k8s_certificate(const struct dp_render *r, const struct dp_node *node, const char *label,
                        struct lh_buf *out);
// `mode`: ReadWriteOnce or ReadWriteMany.
void dp_k8s_claim(struct lh_buf *out, const char *name, const char *mode, double bytes);
void dp_k8s_pod(struct lh_buf *out, unsigned indent); // fields of a pod's spec
// Fields of a container with probes. `serves`: it listens on DP_RENDER_PORT. `one_of_two`: of a
// pair, the other of which leads while it stands by; that is good enough for a probe.
void dp_k8s_container(struct lh_buf *out, unsigned indent, bool serves, bool one_of_two);
// For a pod and a container that use an object store: the web identity, the access key.
void dp_k8s_account(struct lh_buf *out, unsigned indent);
void dp_k8s_store(struct lh_buf *out, unsigned indent);
// Fields of every container.
void dp_k8s_confine(struct lh_buf *out, unsigned indent);
void dp_k8s_memory(struct lh_buf *out, unsigned indent, double bytes, long long gpus);
// `data`: where a region's own token files are; NULL: among the others. The volume of files is
// mounted there, too.
void dp_k8s_mounts(struct lh_buf *out, unsigned indent, const char *data);
// Volumes but `state`. A worker's secrets are those of `node`.
void dp_k8s_volumes(struct lh_buf *out, unsigned indent, const struct dp_node *node,
                    const char *label);

// A kustomization down to its resources that all clusters have, and its generator down to the
// files.
void dp_k8s_kustomization(const struct dp_render *r, struct lh_buf *out, const char *what);
void dp_k8s_generator(struct lh_buf *out);
// Writes the namespace, and the volume of files that the operator fills; with `stores` also the
// service account of pods that use an object store.
LH_MUST lh_err dp_k8s_storage(const struct dp_render *r, const char *folder, bool stores);

// ---- k8s_region.c
LH_MUST lh_err dp_k8s_region(struct dp_render *r, unsigned region);

#endif
