// The real NCCL at argv[1]: on a machine without a device it answers as the table expects.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/ranks/comm/nccl.h"

static int complain(const char *what, int result)
{
    fprintf(stderr, "nccl.real: %s: %d\n", what, result);
    return 1;
}

// Without a device init fails at once and gives no communicator; with one it goes on in the
// background and is aborted.
static int try_init(const struct wk_nccl *n, const struct wk_nccl_id *id)
{
    struct wk_nccl_config config = WK_NCCL_CONFIG;
    wk_nccl_comm comm = NULL;
    int result = n->api.init(&comm, 2, *id, 0, &config), is;
    const char *text = n->api.error_text(result);
    if (result != WK_NCCL_OK && result != WK_NCCL_IN_PROGRESS) {
        if (result != WK_NCCL_CUDA || comm) return complain("an error, but not CUDA's", result);
        printf("init: %s\n", text);
        return 0;
    }
    if (n->api.async_error(comm, &is)) return complain("async_error", is);
    printf("init: under way, state %d\n", is);
    return n->api.abort(comm) ? complain("abort", 0) : 0;
}

int main(int argc, char **argv)
{
    struct wk_nccl n;
    struct wk_nccl_id id[2];
    char text[32];
    if (argc != 2) return complain("usage: real LIBRARY", 0);
    wk_nccl_defaults("lo", "");
    if (wk_nccl_open(argv[1], &n)) return complain(lh_err_text(LH_ERR_UNSUPPORTED), 0);
    printf("NCCL %s\n", wk_nccl_version_text(n.version, text));
    if (n.version < WK_NCCL_VERSION_MIN) return complain("version", n.version);
    for (size_t i = 0; i < LH_COUNT(id); i++) {
        int result = n.api.unique_id(&id[i]);
        if (result) return complain("unique_id", result);
    }
    if (!memcmp(&id[0], &id[1], sizeof id[0])) return complain("two ids are equal", 0);
    if (strcmp(n.api.error_text(WK_NCCL_OK), "no error") != 0) return complain("error_text", 0);
    return try_init(&n, &id[0]); // its threads run: the library stays open to the end
}
