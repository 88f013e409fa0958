// deploy/models/export.c, export_command.c: an export gives back what was imported; types, files
// and tensors that the run did not train are unchanged; every state in a server's directory can be
// exported.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deploy/models/export.h"
#include "deploy/models/import.h"
#include "deploy/text/eval.h"
#include "deploy/tool/cli.h"
#include "tests/history/files.h"
#include "tests/history/rig.h"
#include "tests/test.h"
#include "tests/unit/deploy/models/tiny.h"

struct rig {
    struct folders f;
    struct lh_manifest manifest;
    float *theta; // the run's final parameters: the imported values, negated
    char manifest_path[DP_PATH_BYTES], out[DP_PATH_BYTES];
    struct lh_buf said;
    unsigned files;
    const char *buffers;
};

static lh_err values(void *arg, uint64_t first, size_t n, float *out)
{
    const struct rig *r = arg;
    memcpy(out, r->theta + first, n * sizeof *out);
    return LH_OK;
}

static void import(struct rig *r, struct tiny *m)
{
    struct dp_texts none = {.at = {"frozen.*"}, .count = 1};
    struct dp_import q = {.out = folders_path(&r->f, "in"), .leave_out = &none, .shards = 1};
    tiny_write(&r->f, m, "hf");
    q.from = folders_path(&r->f, "hf");
    assert_int_equal(dp_import(&q), LH_OK);
    dp_import_free(&q);
    assert_int_equal(dp_path(r->manifest_path, "%s", folders_path(&r->f, "in/model.json")), LH_OK);
    assert_int_equal(dp_manifest_load(r->manifest_path, &r->manifest), LH_OK);
    assert_int_equal(
        dp_floats_load(folders_path(&r->f, "in/weights.bin"), r->manifest.values, &r->theta),
        LH_OK);
    for (uint64_t i = 0; i < r->manifest.values; i++) r->theta[i] = -r->theta[i];
}

static lh_err export(struct rig *r, const char *out, const char *like, const enum dp_dtype *dtype,
                     uint64_t most)
{
    json_t *about = json_pack("{s:s}", "schema", "test");
    struct dp_export e = {.manifest = &r->manifest,
                          .manifest_path = r->manifest_path,
                          .values = values,
                          .arg = r,
                          .like = like ? folders_path(&r->f, like) : NULL,
                          .buffers = r->buffers,
                          .out = r->out,
                          .dtype = dtype,
                          .shard_bytes_max = most,
                          .about = about};
    assert_int_equal(dp_path(r->out, "%s", folders_path(&r->f, out)), LH_OK);
    lh_err err = dp_export(&e);
    json_decref(about);
    lh_buf_clear(&r->said);
    lh_put(&r->said, e.notes.data, e.notes.len);
    lh_put_u8(&r->said, 0);
    lh_buf_free(&e.notes);
    r->files = e.files;
    return err;
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    r->said = lh_buf(1 << 20);
    folders_start(&r->f);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    folders_end(&r->f);
    lh_manifest_free(&r->manifest);
    lh_buf_free(&r->said);
    free(r->theta);
    free(r);
    return 0;
}

// Checks that the tensor in the written folder has this type and shape, and the imported values
// times `factor`.
static void check_tensor(struct dp_folder *f, const struct dp_st_tensor *was, enum dp_dtype type,
                         float factor)
{
    const struct dp_folder_tensor *t = dp_folder_find(f, was->name);
    assert_non_null(t);
    assert_int_equal(t->t.dtype, type);
    assert_int_equal(t->t.dims, was->dims);
    assert_memory_equal(t->t.shape, was->shape, sizeof was->shape);
    uint8_t raw[256];
    float is[64];
    assert_true(t->t.bytes <= sizeof raw && t->t.values <= LH_COUNT(is));
    assert_int_equal(dp_folder_bytes(f, t, 0, t->t.bytes, raw), LH_OK);
    dp_dtype_to_f32(type, raw, t->t.values, is);
    for (uint64_t i = 0; i < t->t.values; i++)
        assert_true(is[i] == factor * tiny_value(was->name, i));
}

static struct tiny with_extras(void)
{
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    tiny_add(&m, "position_ids", DP_DTYPE_I64, 3, 0);
    tiny_add(&m, "frozen.w", DP_DTYPE_F16, 5, 0);
    return m;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(an_imported_model_is_exported_unchanged, struct rig *r)
{
    struct tiny m = with_extras();
    struct dp_folder f;
    struct lh_buf text = lh_buf(1 << 16);
    import(r, &m);
    folders_text(&r->f, "hf/tokenizer.json", "{\"a\": 1}");
    assert_int_equal(export(r, "out", "hf", NULL, 1 << 30), LH_OK);
    assert_string_equal((const char *)r->said.data, "");
    assert_int_equal(r->files, 1);
    assert_int_equal(dp_folder_open(&f, r->out), LH_OK);
    assert_int_equal(f.tensors, m.count);
    for (unsigned i = 0; i < TINY_TENSORS; i++) check_tensor(&f, &m.t[i], m.t[i].dtype, -1);
    check_tensor(&f, tiny_find(&m, "frozen.w"), DP_DTYPE_F16, 1);
    const struct dp_folder_tensor *ids = dp_folder_find(&f, "position_ids");
    uint8_t raw[24];
    assert_int_equal(ids->t.bytes, sizeof raw);
    assert_int_equal(dp_folder_bytes(&f, ids, 0, sizeof raw, raw), LH_OK);
    assert_true(raw[0] == 1 && raw[8] == 2 && raw[23] == 3);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(f.file[0].st.root, "__metadata__"), "format")),
                        "pt");
    dp_folder_close(&f);
    assert_int_equal(dp_file_read(folders_path(&r->f, "out/config.json"), &text), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&text), lh_span_str(TINY_CONFIG)));
    assert_int_equal(dp_file_read(folders_path(&r->f, "out/tokenizer.json"), &text), LH_OK);
    assert_true(dp_file_exists(folders_path(&r->f, "out/longhaul.json")));
    assert_int_equal(export(r, "out", "hf", NULL, 1 << 30), LH_ERR_EXISTS);
    lh_buf_free(&text);
}

IN_RIG(without_the_folder_the_imports_record_tells_the_types, struct rig *r)
{
    struct tiny m = with_extras();
    struct dp_folder f;
    import(r, &m);
    assert_int_equal(export(r, "out", NULL, NULL, 1 << 30), LH_OK);
    assert_non_null(strstr((const char *)r->said.data, "not written: position_ids, which the run "
                                                       "did not train (not a float); --like"));
    assert_int_equal(dp_folder_open(&f, r->out), LH_OK);
    assert_int_equal(f.tensors, TINY_TENSORS);
    for (unsigned i = 0; i < TINY_TENSORS; i++) check_tensor(&f, &m.t[i], m.t[i].dtype, -1);
    dp_folder_close(&f);
    // Without import.json the model's stored types are unknown: fp32.
    assert_int_equal(remove(folders_path(&r->f, "in/import.json")), 0);
    assert_int_equal(export(r, "out-2", NULL, NULL, 1 << 30), LH_OK);
    assert_int_equal(dp_folder_open(&f, r->out), LH_OK);
    for (unsigned i = 0; i < TINY_TENSORS; i++) check_tensor(&f, &m.t[i], DP_DTYPE_F32, -1);
    dp_folder_close(&f);
    folders_text(&r->f, "in/import.json", "{\"tensors\":{\"lm_head.weight\":\"X\"}}");
    lh_err err = export(r, "out-3", NULL, NULL, 1 << 30);
    assert_true(folders_says(err, "lm_head.weight: dtype \"X\" is not known"));
}

IN_RIG(another_type_is_written_into_config_json, struct rig *r)
{
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    struct dp_folder f;
    const enum dp_dtype half = DP_DTYPE_F16;
    json_t *config;
    import(r, &m);
    assert_int_equal(export(r, "out", "hf", &half, 1 << 30), LH_OK);
    assert_int_equal(dp_folder_open(&f, r->out), LH_OK);
    for (unsigned i = 0; i < TINY_TENSORS; i++) check_tensor(&f, &m.t[i], half, -1);
    assert_int_equal(dp_folder_json(r->out, "config.json", &config), LH_OK);
    assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")), "float16");
    assert_null(json_object_get(config, "dtype"));
    assert_true(json_real_value(json_object_get(config, "rms_norm_eps")) == 1e-5);
    assert_int_equal(json_integer_value(json_object_get(config, "hidden_size")), 4);
    json_decref(config);
    dp_folder_close(&f);
    r->theta[3] = 65520; // infinity in F16
    lh_err err = export(r, "out-2", "hf", &half, 1 << 30);
    assert_int_equal(err, LH_ERR_TOO_LARGE);
    assert_true(folders_says(err, "tensor model.embed_tokens.weight: a value is beyond what F16"));
    assert_false(dp_file_exists(folders_path(&r->f, "out-2/model.safetensors")));
    assert_false(dp_file_exists(folders_path(&r->f, "out-2/model.safetensors.tmp")));
}

IN_RIG(a_large_model_is_cut_into_files, struct rig *r)
{
    struct tiny m = with_extras();
    struct dp_folder f;
    enum { MOST = 60 }; // embedding and head have 64 bytes: a file for each
    import(r, &m);
    assert_int_equal(export(r, "out", "hf", NULL, MOST), LH_OK);
    assert_true(r->files > 4);
    assert_false(dp_file_exists(folders_path(&r->f, "out/model.safetensors")));
    assert_int_equal(dp_folder_open(&f, r->out), LH_OK);
    assert_int_equal(f.files, r->files);
    assert_int_equal(f.tensors, m.count);
    for (unsigned i = 0; i < f.files; i++) {
        const struct dp_st *st = &f.file[i].st;
        const struct dp_st_tensor *last = &st->tensor[st->tensors - 1];
        assert_true(st->tensors == 1 || last->at + last->bytes <= MOST);
    }
    for (unsigned i = 0; i < TINY_TENSORS; i++) check_tensor(&f, &m.t[i], m.t[i].dtype, -1);
    json_t *index;
    assert_int_equal(dp_folder_json(r->out, "model.safetensors.index.json", &index), LH_OK);
    json_int_t total = 0, sum = 0;
    assert_int_equal(json_unpack(index, "{s:{s:I}}", "metadata", "total_size", &total), 0);
    for (uint32_t i = 0; i < f.tensors; i++) sum += (json_int_t)f.tensor[i].t.bytes;
    assert_int_equal(total, sum);
    json_decref(index);
    dp_folder_close(&f);
}

IN_RIG(a_folder_takes_one_export_at_a_time, struct rig *r)
{
    struct tiny m = with_extras();
    import(r, &m);
    assert_int_equal(dp_make_dirs(folders_path(&r->f, "out")), LH_OK);
    int fd = open(folders_path(&r->f, "out"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0); // held by another export
    assert_int_equal(export(r, "out", "hf", NULL, 1 << 30), LH_ERR_BUSY);
    assert_false(dp_file_exists(folders_path(&r->f, "out/longhaul.json")));
    close(fd);
    // An export that fails, for example without space, leaves nothing that blocks the next one.
    assert_int_equal(dp_make_dirs(folders_path(&r->f, "out/model.safetensors.tmp")), LH_OK);
    assert_int_not_equal(export(r, "out", "hf", NULL, 1 << 30), LH_OK);
    assert_int_equal(rmdir(folders_path(&r->f, "out/model.safetensors.tmp")), 0);
    assert_int_equal(export(r, "out", "hf", NULL, 1 << 30), LH_OK);
}

IN_RIG(another_models_folder_is_refused, struct rig *r)
{
    struct tiny m = tiny_llama(DP_DTYPE_BF16), other = tiny_llama(DP_DTYPE_BF16);
    import(r, &m);
    other.config = NULL;
    tiny_find(&other, "model.norm.weight")->shape[0] = 5;
    tiny_write(&r->f, &other, "other");
    lh_err err = export(r, "out", "other", NULL, 1 << 30);
    assert_int_equal(err, LH_ERR_MANIFEST);
    assert_true(folders_says(err, "tensor model.norm.weight has another shape"));
    tiny_find(&other, "model.norm.weight")->name = "norm";
    tiny_write(&r->f, &other, "other");
    err = export(r, "out", "other", NULL, 1 << 30);
    assert_true(folders_says(err, "tensor model.norm.weight is not in it"));
}

// ---------------------------------------------------------------- the command

static int run(struct history_rig *r, const char *line)
{
    return history_command(r, "export", line);
}

#define COMMAND(name, parameter) TEST_WITH(name, parameter, history_set_up_files, history_tear_down)

COMMAND(every_version_of_a_server_comes_out, struct history_rig *r)
{
    struct dp_folder f;
    struct lh_buf want = lh_buf(1 << 20);
    char line[2 * DP_PATH_BYTES];
    snprintf(line, sizeof line, "replay @server JOB --to 8 --export %s",
             history_in_root(r, "past.bin"));
    assert_int_equal(history_command(r, "log", line), DP_OK);
    assert_int_equal(dp_file_read(history_in_root(r, "past.bin"), &want), LH_OK);
    assert_int_equal(run(r, "@server JOB --at 8 --to safetensors --out @hf"), DP_OK);
    assert_int_equal(run(r, "--parameters @past.bin --manifest @model.json --out @hf-2"), DP_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dp_folder_open(&f, history_in_root(r, i ? "hf-2" : "hf")), LH_OK);
        for (uint32_t k = 0; k < r->h.manifest.tensors; k++) {
            const struct lh_tensor *t = &r->h.manifest.tensor[k];
            const struct dp_folder_tensor *is = dp_folder_find(&f, t->name);
            uint8_t *raw = malloc(is->t.bytes);
            assert_int_equal(is->t.bytes, t->len * sizeof(float));
            assert_int_equal(dp_folder_bytes(&f, is, 0, is->t.bytes, raw), LH_OK);
            assert_memory_equal(raw, want.data + t->offset * sizeof(float), is->t.bytes);
            free(raw);
        }
        dp_folder_close(&f);
    }
    json_t *about;
    json_int_t version;
    assert_int_equal(dp_folder_json(history_in_root(r, "hf"), "longhaul.json", &about), LH_OK);
    assert_int_equal(json_unpack(about, "{s:[{s:I}]}", "shards", "version", &version), 0);
    assert_int_equal(version, 8);
    json_decref(about);
    lh_buf_free(&want);
}

// Both kinds of checkpoints, without a log beside them.
COMMAND(a_folder_of_checkpoints_is_enough, struct history_rig *r)
{
    struct lh_buf a = lh_buf(1 << 20), b = lh_buf(1 << 20);
    assert_int_equal(run(r, "@server JOB --weights-only --out @none"), DP_MISSING);
    for (uint32_t shard = 0; shard < HISTORY_SHARDS; shard++)
        for (int weights = 0; weights < 2; weights++) history_write(&r->h, shard, weights);
    history_copy_out(&r->h, history_in_root(r, "server"));
    assert_int_equal(run(r, "@server JOB --out @whole"), DP_OK);
    assert_int_equal(run(r, "@server/checkpoints JOB --out @full"), DP_OK);
    assert_int_equal(run(r, "@server/checkpoints JOB --weights-only --out @weights"), DP_OK);
    assert_int_equal(run(r, "@server JOB --weights-only --at 1000 --out @none"), DP_MISSING);
    assert_int_equal(dp_file_read(history_in_root(r, "whole/model.safetensors"), &a), LH_OK);
    assert_int_equal(dp_file_read(history_in_root(r, "full/model.safetensors"), &b), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&a), lh_buf_span(&b)));
    assert_int_equal(dp_file_read(history_in_root(r, "weights/model.safetensors"), &b), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&a), lh_buf_span(&b)));
    json_t *about;
    json_int_t version;
    assert_int_equal(dp_folder_json(history_in_root(r, "weights"), "longhaul.json", &about), LH_OK);
    assert_int_equal(json_unpack(about, "{s:[{s:I}]}", "shards", "version", &version), 0);
    assert_int_equal(version, r->h.replica[0].ledger.version);
    json_decref(about);
    lh_buf_free(&a);
    lh_buf_free(&b);
}

// BatchNorm: the run trains the weight; the running statistics come from the training loop.
IN_RIG(running_statistics_are_a_regions_or_it_is_refused, struct rig *r)
{
    struct tiny m = {.config = "{\"model_type\": \"resnet\"}"};
    tiny_add(&m, "bn.weight", DP_DTYPE_F32, 3, 0);
    tiny_add(&m, "bn.running_mean", DP_DTYPE_F32, 3, 0);
    tiny_add(&m, "bn.running_var", DP_DTYPE_F32, 3, 0);
    import(r, &m);
    assert_int_equal(export(r, "ex", "hf", NULL, 1 << 20), LH_ERR_MANIFEST);
    assert_true(folders_says(LH_ERR_MANIFEST, "bn.running_mean is from before the training"));
    static const float handed[6] = {1, 2, 3, 4, 5, 6};
    folders_tensors(
        &r->f, "asia-0/buffers.safetensors",
        "{\"bn.running_mean\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
        "\"bn.running_var\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
        handed, sizeof handed);
    r->buffers = folders_path(&r->f, "asia-0/buffers.safetensors");
    assert_int_equal(export(r, "ex2", "hf", NULL, 1 << 20), LH_OK);
    assert_non_null(strstr((const char *)r->said.data, "2 buffers are as "));
    struct dp_folder out;
    float is[3];
    assert_int_equal(dp_folder_open(&out, folders_path(&r->f, "ex2")), LH_OK);
    const struct dp_folder_tensor *t = dp_folder_find(&out, "bn.running_var");
    assert_non_null(t);
    assert_int_equal(dp_folder_bytes(&out, t, 0, sizeof is, (uint8_t *)is), LH_OK);
    assert_memory_equal(is, handed + 3, sizeof is);
    dp_folder_close(&out);
    r->buffers = NULL;
}

// Runs `longhaul export --dir DIR --like LIKE --out OUT`; r->said gets its messages.
static int export_run(struct rig *r, const char *dir, const char *like, const char *out)
{
    char words[][DP_PATH_BYTES] = {"export", "--dir", "", "--like", "", "--out", ""};
    const char *given[] = {dir, like, out};
    char *line[LH_COUNT(words)];
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(dp_path(words[2 * i + 2], "%s", given[i]), LH_OK);
    for (size_t i = 0; i < LH_COUNT(words); i++) line[i] = words[i];
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && freopen(folders_path(&r->f, "said"), "w", stderr));
    int code = dp_command(LH_COUNT(line), line);
    fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    assert_int_equal(dp_file_read(folders_path(&r->f, "said"), &r->said), LH_OK);
    lh_put_u8(&r->said, 0);
    return code;
}

// A run went on without asia, so the statistics that asia's loop left are older than europe's.
IN_RIG(the_newest_statistics_of_a_run_s_folder_are_taken, struct rig *r)
{
    static const char header[] =
        "{\"bn.running_mean\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}";
    static const float before[3] = {1, 2, 3}, after[3] = {4, 5, 6};
    struct tiny m = {.config = "{\"model_type\": \"resnet\"}"};
    tiny_add(&m, "bn.weight", DP_DTYPE_F32, 3, 0);
    tiny_add(&m, "bn.running_mean", DP_DTYPE_F32, 3, 0);
    import(r, &m);
    folders_bytes(&r->f, "in/final.bin", r->theta, r->manifest.values * sizeof *r->theta);
    folders_tensors(&r->f, "in/asia-0/buffers.safetensors", header, before, sizeof before);
    folders_tensors(&r->f, "in/europe-0/buffers.safetensors", header, after, sizeof after);
    const struct timespec old[2] = {{1, 0}, {1, 0}};
    assert_int_equal(
        utimensat(AT_FDCWD, folders_path(&r->f, "in/asia-0/buffers.safetensors"), old, 0), 0);
    char dir[DP_PATH_BYTES], like[DP_PATH_BYTES], out[DP_PATH_BYTES];
    assert_int_equal(dp_path(dir, "%s", folders_path(&r->f, "in")), LH_OK);
    assert_int_equal(dp_path(like, "%s", folders_path(&r->f, "hf")), LH_OK);
    assert_int_equal(dp_path(out, "%s", folders_path(&r->f, "ex")), LH_OK);
    assert_int_equal(export_run(r, dir, like, out), DP_OK);
    assert_null(strstr((const char *)r->said.data, "gone on"));
    struct dp_folder f;
    float is[3];
    assert_int_equal(dp_folder_open(&f, out), LH_OK);
    const struct dp_folder_tensor *t = dp_folder_find(&f, "bn.running_mean");
    assert_non_null(t);
    assert_int_equal(dp_folder_bytes(&f, t, 0, sizeof is, (uint8_t *)is), LH_OK);
    assert_memory_equal(is, after, sizeof is);
    dp_folder_close(&f);
    folders_text(&r->f, "in/coordinator/status.json", "{\"phase\": \"ended\"}");
    assert_int_equal(export_run(r, dir, like, folders_path(&r->f, "ex2")), DP_OK);
    assert_null(strstr((const char *)r->said.data, "gone on"));
    folders_text(&r->f, "in/coordinator/status.json", "{\"phase\": \"running\"}");
    assert_int_equal(export_run(r, dir, like, folders_path(&r->f, "ex3")), DP_OK);
    assert_non_null(strstr((const char *)r->said.data, "final.bin is from the run's last end, and "
                                                       "the run has gone on since"));
}

IN_RIG(a_scalar_comes_out_as_one, struct rig *r)
{
    struct tiny m = {.config = "{\"model_type\": \"clip\"}"};
    tiny_add(&m, "logit_scale", DP_DTYPE_F32, 0, 0)->dims = 0;
    tiny_add(&m, "w", DP_DTYPE_F32, 3, 0);
    import(r, &m);
    assert_int_equal(export(r, "ex", "hf", NULL, 1 << 20), LH_OK);
    struct dp_folder out;
    assert_int_equal(dp_folder_open(&out, folders_path(&r->f, "ex")), LH_OK);
    const struct dp_folder_tensor *t = dp_folder_find(&out, "logit_scale");
    assert_true(t && t->t.dims == 0 && t->t.values == 1);
    dp_folder_close(&out);
}

static void same_file(struct history_rig *r, const char *one, const char *other)
{
    struct lh_buf a = lh_buf(1 << 20), b = lh_buf(1 << 20);
    assert_int_equal(dp_file_read(history_in_root(r, one), &a), LH_OK);
    assert_int_equal(dp_file_read(history_in_root(r, other), &b), LH_OK);
    assert_true(a.len && lh_span_equal(lh_buf_span(&a), lh_buf_span(&b)));
    lh_buf_free(&a);
    lh_buf_free(&b);
}

// Nothing is left in TMPDIR, and stored.json has the list that `store pull` checks.
COMMAND(an_export_goes_into_a_store, struct history_rig *r)
{
    char line[2 * DP_PATH_BYTES], store[DP_PATH_BYTES];
    assert_int_equal(dp_path(store, "file://%s", history_in_root(r, "store/deep")), LH_OK);
    assert_int_equal(dp_make_dirs(history_in_root(r, "tmp")), LH_OK);
    assert_int_equal(setenv("TMPDIR", history_in_root(r, "tmp"), 1), 0);
    snprintf(line, sizeof line, "@server JOB --at 8 --max-shard-size 1KiB --out %s", store);
    assert_int_equal(run(r, line), DP_OK);
    assert_true(history_says(r, store));
    assert_int_equal(run(r, line), DP_FAILED); // the address already holds an export
    assert_int_equal(rmdir(history_in_root(r, "tmp")), 0);
    assert_int_equal(run(r, line), DP_FAILED);
    assert_int_equal(unsetenv("TMPDIR"), 0);
    assert_int_equal(run(r, "@server JOB --at 8 --max-shard-size 1KiB --out @local"), DP_OK);
    snprintf(line, sizeof line, "pull %s @pulled", store);
    assert_int_equal(history_command(r, "store", line), DP_OK);
    same_file(r, "local/model.safetensors.index.json", "pulled/model.safetensors.index.json");
    same_file(r, "local/model-00001-of-00002.safetensors",
              "pulled/model-00001-of-00002.safetensors");
    same_file(r, "local/longhaul.json", "pulled/longhaul.json");
    assert_int_equal(run(r, "@server JOB --out s3://a/b/"), DP_CONFIG);
}

COMMAND(a_wrong_line_is_told, struct history_rig *r)
{
    assert_int_equal(run(r, "@server JOB"), DP_USAGE); // no --out
    assert_int_equal(run(r, "@server JOB --out @x --to gguf"), DP_USAGE);
    assert_int_equal(run(r, "@server JOB --out @x --dir @y"), DP_USAGE);
    assert_int_equal(run(r, "--parameters @p --out @x"), DP_USAGE); // no --manifest
    assert_int_equal(run(r, "--parameters @p --out @x --at 3 --manifest @model.json"), DP_USAGE);
    assert_int_equal(run(r, "--parameters @p --out @x --manifest @model.json"), DP_MISSING);
    assert_int_equal(run(r, "--parameters @job.keys --out @x --manifest @model.json"),
                     DP_UNVERIFIED);
    assert_int_equal(run(r, "--dir @server --out @x"), DP_MISSING);
    assert_int_equal(run(r, "@server JOB --out @x --dtype I64"), DP_USAGE);
    assert_int_equal(run(r, "@server JOB --out @x --max-shard-size 5TB"), DP_USAGE);
    assert_int_equal(run(r, "@server JOB --out @x --max-shard-size 0"), DP_USAGE);
    assert_int_equal(run(r, "@server JOB --out @x --max-shard-size -1GB"), DP_USAGE);
    assert_int_equal(run(r, "@server JOB --out @x --at 1000"), DP_MISSING);
    assert_int_equal(run(r, "@server JOB --out @x --at 8 --dtype bf16 --max-shard-size 1KiB"),
                     DP_OK);
    assert_true(dp_file_exists(history_in_root(r, "x/model.safetensors.index.json")));
}
