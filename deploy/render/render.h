// longhaul render: a topology as the files of a scheduler, which starts the nodes where `up` would.
//
//   render_command.c  the command and its flags
//   render.c          what all schedulers need: the nodes and their settings files, names
//   host.c            host.sh, which keeps the processes of one host of a worker running
//   slurm.c           a batch script for each region
//   k8s.c             the manifests of the servers' cluster
//   k8s_region.c      the manifests of a region's cluster
//   k8s_parts.c       the pieces that both have
#ifndef DP_RENDER_H
#define DP_RENDER_H

#include "deploy/up/up.h"

enum { DP_RENDER_PORT = 7700, DP_RENDER_RANKS_PORT = 7701, DP_RENDER_LABEL_BYTES = 48 };

struct dp_render_flags {
    const char *topology, *out;
    const char *coordinator; // slurm: its host:port, or those of two
    const char *domain;      // k8s: node NAME is at NAME.DOMAIN; domain of the certificates
    const char *data;        // address of the token files in a store; NULL: they are in a folder
    const char *image, *name_space;
};

struct dp_render {
    struct dp_render_flags flags;
    struct dp_up *up; // prepared for settings files; starts nothing
    char name_space[DP_RENDER_LABEL_BYTES + 16];
    char label[DP_NODES_MAX][DP_RENDER_LABEL_BYTES]; // each node's name as a DNS label; k8s only
};

// Reads the topology, makes the model's manifest and lists the nodes. The caller sets the places
// and the addresses. dp_render_close() afterwards, on an error too.
LH_MUST lh_err dp_render_open(struct dp_render *r, const char *by);
// The data's place: --data, else the folder.
LH_MUST lh_err dp_render_data(struct dp_render *r, const char *folder);
void dp_render_close(struct dp_render *r);
// Refuses a region with the name of one of the folders in OUT.
LH_MUST lh_err dp_render_no_region(const struct dp_render *r, const char *folder);
// Writes model.json, weights.bin and, if no unit is leased, units.json to OUT/files.
LH_MUST lh_err dp_render_files(struct dp_render *r);

// Writes OUT/FOLDER/NAME, and makes the folder.
LH_MUST lh_err dp_render_write(const struct dp_render *r, const char *folder, const char *name,
                               const struct lh_buf *text);
// Writes the settings file of each of the region's ranks, or with region DP_REGIONS_MAX of the
// coordinator and the servers, to OUT/FOLDER.
LH_MUST lh_err dp_render_settings(struct dp_render *r, unsigned region, const char *folder);
// Writes a word as a shell reads it back.
void dp_render_quote(struct lh_buf *out, const char *word);

// ---- host.c
// The text of host.sh for a region. `settings`: the folder of its settings files.
LH_MUST lh_err dp_render_host(const struct dp_render *r, unsigned region, const char *settings,
                              struct lh_buf *out);

LH_MUST lh_err dp_render_slurm(struct dp_render *r);
LH_MUST lh_err dp_render_k8s(struct dp_render *r);

#endif
