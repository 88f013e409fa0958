// The tensors of a model's folder (model.safetensors, or the files that
// model.safetensors.index.json names), or of one file.
//
// Values are read with pread() into the caller's memory, a piece at a time: a mapped file would
// kill the process if somebody truncated it, and a model may be larger than memory.
#ifndef DP_FOLDER_H
#define DP_FOLDER_H

#include "deploy/models/safetensors.h"
#include "deploy/tool/files.h"

enum { DP_FOLDER_FILES_MAX = 4096 };

struct dp_folder_file {
    char path[DP_PATH_BYTES];
    struct dp_st st;
};

struct dp_folder_tensor {
    struct dp_st_tensor t;
    const struct dp_folder_file *file;
};

struct dp_folder {
    char dir[DP_PATH_BYTES]; // the folder; "" for a single file outside one
    struct dp_folder_file *file;
    unsigned files;
    struct dp_folder_tensor *tensor; // ascending by name
    uint32_t tensors;
    char *renamed; // one tensor's new name; NULL: all have their files' names
    int fd;        // the file read last; -1: none
    const struct dp_folder_file *opened;
};

// Reads all headers; dp_folder_close() it in any case. LH_ERR_NOT_FOUND: the path is missing or
// holds nothing readable, with what to do; else the errors of dp_st_parse().
LH_MUST lh_err dp_folder_open(struct dp_folder *f, const char *path);
void dp_folder_close(struct dp_folder *f);
const struct dp_folder_tensor *dp_folder_find(const struct dp_folder *f, const char *name);
// Gives a tensor a new, unused name. At most once per folder.
LH_MUST lh_err dp_folder_rename(struct dp_folder *f, const char *name, const char *to);
// Reads `bytes` bytes of a tensor from its byte `from` on. LH_ERR_MALFORMED: the file got shorter.
LH_MUST lh_err dp_folder_bytes(struct dp_folder *f, const struct dp_folder_tensor *t, uint64_t from,
                               size_t bytes, uint8_t *out);
// Reads DIR/NAME as a JSON object; *out is NULL if the file is missing. json_decref() it.
LH_MUST lh_err dp_folder_json(const char *dir, const char *name, json_t **out);

#endif
