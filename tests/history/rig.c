// Shared by the tests of histories. See rig.h.
#include "tests/history/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "tests/history/files.h"
#include "tests/remove_tree.h"
#include "tests/world/env_fake.h"

enum { WORDS_MAX = 32 };

void history_rig_start(struct history_rig *r)
{
    *r = (struct history_rig){.world = lh_fake_world_create(1), .out = lh_buf(1 << 20)};
    r->env = lh_fake_node(r->world, NULL, NULL);
    lh_fake_boot(r->env);
    history_start(&r->h, r->env, "server");
}

void history_rig_root(struct history_rig *r)
{
    snprintf(r->root, sizeof r->root, "/tmp/longhaul-history-XXXXXX");
    LH_ASSERT(mkdtemp(r->root));
}

void history_rig_files(struct history_rig *r)
{
    history_rig_root(r);
    history_usual(&r->h);
    history_copy_out(&r->h, history_in_root(r, "server"));
    history_write_job(&r->h, r->root);
}

void history_rig_finish(struct history_rig *r)
{
    history_finish(&r->h);
    lh_fake_world_destroy(r->world);
    if (r->root[0]) remove_tree(r->root);
    for (int i = 0; i < 2; i++) lh_signer_destroy(r->signer[i]);
    lh_buf_free(&r->out);
}

const char *history_in_root(const struct history_rig *r, const char *name)
{
    static char path[8][DP_PATH_BYTES];
    static int next;
    char *out = path[next++ % 8];
    lh_err err = dp_path(out, "%s/%s", r->root, name);
    LH_ASSERT(err == LH_OK);
    return out;
}

// Splits the line into argv from 1 on; the caller frees each word.
static int words_of(const struct history_rig *r, const char *line, char *argv[WORDS_MAX])
{
    char words[4096];
    int argc = 1;
    LH_ASSERT((size_t)snprintf(words, sizeof words, "%s", line) < sizeof words);
    for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest));) {
        const char *job[] = {"--manifest", history_in_root(r, "model.json"), "--run", HISTORY_RUN,
                             "--keys",     history_in_root(r, "job.keys")};
        bool all = !strcmp(word, "JOB");
        LH_ASSERT(argc + (int)LH_COUNT(job) < WORDS_MAX);
        for (size_t i = 0; all && i < LH_COUNT(job); i++) argv[argc++] = strdup(job[i]);
        if (!all) argv[argc++] = strdup(word[0] == '@' ? history_in_root(r, word + 1) : word);
    }
    return argc;
}

int history_command(struct history_rig *r, const char *name, const char *line)
{
    char *argv[WORDS_MAX] = {strdup(name)};
    int argc = words_of(r, line, argv);
    const char *out = history_in_root(r, "out");
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    LH_ASSERT(kept >= 0 && freopen(out, "w", stdout));
    int code = dp_command(argc, argv);
    fflush(stdout);
    LH_ASSERT(dup2(kept, STDOUT_FILENO) >= 0);
    close(kept);
    for (int i = 0; i < argc; i++) free(argv[i]);
    lh_err err = dp_file_read(history_in_root(r, "out"), &r->out);
    LH_ASSERT(err == LH_OK);
    lh_put_u8(&r->out, 0);
    return code;
}

bool history_says(const struct history_rig *r, const char *text)
{
    return strstr((const char *)r->out.data, text) != NULL;
}

static struct history_rig *new_rig(void **state)
{
    struct history_rig *r = calloc(1, sizeof *r);
    LH_ASSERT(r);
    history_rig_start(r);
    *state = r;
    return r;
}

int history_set_up_files(void **state)
{
    history_rig_files(new_rig(state));
    return 0;
}

int history_set_up_shards(void **state)
{
    struct history_rig *r = new_rig(state);
    for (uint32_t shard = 0; shard < HISTORY_SHARDS; shard++) {
        history_add(&r->h, shard, LH_PLAN);
        history_add(&r->h, shard, LH_FENCE);
    }
    return 0;
}

int history_set_up_signed(void **state)
{
    history_set_up_shards(state);
    struct history_rig *r = *state;
    history_rig_root(r);
    for (int i = 0; i < 2; i++) {
        const char *path = history_in_root(r, i ? "1" : "0");
        lh_err err = lh_sign_generate(path, "test");
        if (!err) err = lh_signer_load(path, &r->signer[i]);
        LH_ASSERT(err == LH_OK);
    }
    return 0;
}

int history_tear_down(void **state)
{
    history_rig_finish(*state);
    free(*state);
    return 0;
}
