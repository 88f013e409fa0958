// deploy/models/folder.c, family.c, import.c: a folder gives the same manifest and parameters
// however its tensors are split into files; a tensor that does not fit is named.
#include "deploy/models/import.h"
#include "deploy/text/eval.h"
#include "tests/test.h"
#include "tests/unit/deploy/models/tiny.h"

static int set_up(void **state)
{
    struct folders *f = calloc(1, sizeof *f);
    folders_start(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    folders_end(*state);
    free(*state);
    return 0;
}

// Imports ROOT/FROM into ROOT/OUT; `said` gets the notes.
static lh_err import_with(const struct folders *f, const char *from, const char *out,
                          const char *leave_out, struct lh_buf *said, char sha256[65])
{
    struct dp_texts texts = {.at = {leave_out}, .count = leave_out != NULL};
    struct dp_import q = {.from = folders_path(f, from),
                          .out = folders_path(f, out),
                          .leave_out = &texts,
                          .shards = 1};
    lh_err err = dp_import(&q);
    lh_buf_clear(said);
    lh_put(said, q.notes.data, q.notes.len);
    lh_put_u8(said, 0);
    if (sha256) memcpy(sha256, q.sha256, 65);
    char kept[512]; // dp_import_free() must not change the error text
    snprintf(kept, sizeof kept, "%s", lh_err_text(err));
    dp_import_free(&q);
    return err ? lh_fail(err, "%s", kept) : LH_OK;
}

static bool says(const struct lh_buf *said, const char *text)
{
    if (strstr((const char *)said->data, text)) return true;
    fprintf(stderr, "said: %s\nwanted: %s\n", (const char *)said->data, text);
    return false;
}

#define IN_FOLDERS(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_FOLDERS(tensors_stand_in_the_models_order, const struct folders *f)
{
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    struct lh_buf said = lh_buf(1 << 20);
    struct lh_manifest is;
    float *theta;
    tiny_write(f, &m, "hf");
    assert_int_equal(import_with(f, "hf", "out", NULL, &said, NULL), LH_OK);
    assert_string_equal((const char *)said.data, "");
    assert_int_equal(dp_manifest_load(folders_path(f, "out/model.json"), &is), LH_OK);
    assert_int_equal(is.tensors, TINY_TENSORS);
    assert_string_equal(is.tensor[0].name, "model.embed_tokens.weight");
    assert_string_equal(is.tensor[1].name, TINY_L "input_layernorm.weight");
    assert_string_equal(is.tensor[11].name, "lm_head.weight");
    assert_int_equal(dp_floats_load(folders_path(f, "out/weights.bin"), is.values, &theta), LH_OK);
    for (uint32_t t = 0; t < is.tensors; t++)
        for (uint64_t i = 0; i < is.tensor[t].len; i++)
            assert_true(theta[is.tensor[t].offset + i] == tiny_value(is.tensor[t].name, i));
    free(theta);
    // The built-in trainer's manifest has the same tensors in the same order.
    struct wk_shape shape;
    struct lh_manifest ours;
    assert_int_equal(wk_shape_parse(is.model_json, &shape), LH_OK);
    assert_int_equal(shape.kv_heads, 1);
    assert_int_equal(shape.context, 16);
    assert_true(shape.rms_eps == 1e-5);
    assert_int_equal(wk_model_manifest(&shape, 1, &ours), LH_OK);
    assert_true(lh_hash_equal(&ours.hash, &is.hash));
    lh_manifest_free(&ours);
    lh_manifest_free(&is);
    lh_buf_free(&said);
}

// One file, and an index of two files with another type, give the same model. Without config.json
// the order differs.
IN_FOLDERS(files_make_no_difference, const struct folders *f)
{
    struct tiny m = tiny_llama(DP_DTYPE_F16), n = tiny_llama(DP_DTYPE_F64);
    struct lh_buf said = lh_buf(1 << 20), index = lh_buf(1 << 16);
    char one[65], two[65], three[65];
    tiny_write(f, &m, "a");
    tiny_file(f, &n, "b", "x-1.safetensors", 0, 5);
    tiny_file(f, &n, "b", "x-2.safetensors", 5, n.count);
    tiny_config(f, &n, "b");
    dp_put(&index, "{\"metadata\":{},\"weight_map\":{");
    for (unsigned i = 0; i < n.count; i++)
        dp_put(&index, "%s\"%s\":\"x-%d.safetensors\"", i ? "," : "", n.t[i].name, i < 5 ? 1 : 2);
    dp_put(&index, "}}");
    lh_put_u8(&index, 0);
    folders_text(f, "b/model.safetensors.index.json", (const char *)index.data);
    assert_int_equal(import_with(f, "a", "out-a", NULL, &said, one), LH_OK);
    assert_int_equal(import_with(f, "b", "out-b", NULL, &said, two), LH_OK);
    assert_int_equal(import_with(f, "a/model.safetensors", "out-c", NULL, &said, three), LH_OK);
    assert_true(says(&said, "a model without config.json: all floats"));
    assert_string_equal(one, two);
    assert_string_not_equal(one, three); // sorted by name: another order
    lh_buf_free(&index);
    lh_buf_free(&said);
}

IN_FOLDERS(an_index_that_does_not_fit_its_files_is_refused, const struct folders *f)
{
    struct tiny m = {.count = 0};
    struct lh_buf said = lh_buf(1 << 20);
    const char *path = "d/model.safetensors.index.json";
    tiny_add(&m, "a", DP_DTYPE_F32, 2, 0);
    tiny_add(&m, "b", DP_DTYPE_F32, 2, 0);
    tiny_file(f, &m, "d", "1", 0, 2);
    tiny_file(f, &m, "d", "2", 1, 2);
    const struct {
        const char *index, *text;
        lh_err err;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"1\"}}", "b is in it, model.safetensors.index.json does not",
         LH_ERR_MALFORMED},
        {"{\"weight_map\":{\"a\":\"1\",\"b\":\"1\",\"c\":\"1\"}}", "tensor c is not in 1",
         LH_ERR_MALFORMED},
        {"{\"weight_map\":{\"a\":\"1\",\"b\":\"2\"}}", "tensor b is in", LH_ERR_MALFORMED},
        {"{\"weight_map\":{\"a\":\"3\"}}", "names 3, which is not there", LH_ERR_NOT_FOUND},
        {"{\"weight_map\":{\"a\":\"../d/1\"}}", "without a slash", LH_ERR_MALFORMED},
        {"{\"weight_map\":{\"a\":7}}", "without a slash", LH_ERR_MALFORMED},
        {"{\"weight_map\":[]}", "no object \"weight_map\"", LH_ERR_MALFORMED},
        {"[]", "no JSON object", LH_ERR_MALFORMED},
        {"{\"weight_map\":{}}", "no tensor that could be trained", LH_ERR_MALFORMED},
    };
    for (size_t i = 0; i < LH_COUNT(cases); i++) {
        folders_text(f, path, cases[i].index);
        lh_err err = import_with(f, "d", "out", NULL, &said, NULL);
        assert_true(folders_says(err, cases[i].text));
        assert_int_equal(err, cases[i].err);
    }
    folders_text(f, path, "{\"weight_map\":{\"a\":\"1\",\"b\":\"1\"}}");
    assert_int_equal(import_with(f, "d", "out", NULL, &said, NULL), LH_OK);
    assert_int_equal(import_with(f, "d", "out", NULL, &said, NULL), LH_ERR_EXISTS);
    assert_int_equal(import_with(f, "e", "out", NULL, &said, NULL), LH_ERR_NOT_FOUND);
    folders_text(f, "g/pytorch_model.bin", "");
    lh_err err = import_with(f, "g", "out", NULL, &said, NULL);
    assert_int_equal(err, LH_ERR_NOT_FOUND);
    assert_true(folders_says(err, "save_pretrained"));
    folders_text(f, "h.safetensors", "short");
    err = import_with(f, "h.safetensors", "out", NULL, &said, NULL);
    assert_true(folders_says(err, "5 bytes, too few"));
    lh_buf_free(&said);
}

// ---------------------------------------------------------------- tensors that do not fit

IN_FOLDERS(missing_unexpected_and_misshaped_are_named, const struct folders *f)
{
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    struct lh_buf said = lh_buf(1 << 20);
    tiny_find(&m, TINY_L "mlp.up_proj.weight")->name = TINY_L "mlp.up.weight";
    tiny_find(&m, TINY_L "self_attn.q_proj.weight")->shape[0] = 8;
    tiny_find(&m, "model.norm.weight")->dtype = DP_DTYPE_I64;
    tiny_add(&m, "bad\033[2Jname\n", DP_DTYPE_F32, 3, 0);
    tiny_write(f, &m, "hf");
    lh_err err = import_with(f, "hf", "out", NULL, &said, NULL);
    assert_int_equal(err, LH_ERR_MANIFEST);
    assert_true(folders_says(err, "5 of its tensors do not fit"));
    assert_true(says(&said, "missing: " TINY_L "mlp.up_proj.weight [6, 4]\n"));
    assert_true(says(&said, "unexpected: " TINY_L "mlp.up.weight;"));
    assert_true(says(&said, "unexpected: bad?[2Jname?; a model")); // safe for a terminal
    assert_true(says(&said, "mis-shaped: " TINY_L "self_attn.q_proj.weight is [8, 4], config.json "
                            "makes it [4, 4]\n"));
    assert_true(says(&said, "model.norm.weight holds I64, a float is wanted"));
    assert_false(dp_file_exists(folders_path(f, "out/weights.bin")));
    lh_buf_free(&said);
}

IN_FOLDERS(other_tensors_are_left_out_and_named, const struct folders *f)
{
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    struct lh_buf said = lh_buf(1 << 20);
    tiny_add(&m, TINY_L "self_attn.rotary_emb.inv_freq", DP_DTYPE_F32, 2, 0);
    tiny_add(&m, "position_ids", DP_DTYPE_I64, 3, 0);
    tiny_add(&m, "score.weight", DP_DTYPE_F32, 3, 0);
    tiny_add(&m, "none", DP_DTYPE_F32, 0, 0);
    tiny_write(f, &m, "hf");
    lh_err err = import_with(f, "hf", "out", NULL, &said, NULL);
    assert_int_equal(err, LH_ERR_MANIFEST);
    assert_true(says(&said, "unexpected: score.weight; a model of type llama"));
    assert_int_equal(import_with(f, "hf", "out", "score.*", &said, NULL), LH_OK);
    assert_true(says(&said, "left out: score.weight, --leave-out\n"));
    assert_true(says(&said, "inv_freq, a buffer, not a parameter\n"));
    assert_true(says(&said, "left out: position_ids, not a float: I64\n"));
    assert_true(says(&said, "left out: none, no values\n"));
    lh_buf_free(&said);
}

IN_FOLDERS(tied_weights_are_stored_once, const struct folders *f)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":4,\"intermediate_size\":6,\"num_hidden_layers\":"
        "1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":8,"
        "\"tie_word_embeddings\":true}";
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    struct lh_buf said = lh_buf(1 << 20);
    struct lh_manifest is;
    m.config = config;
    tiny_write(f, &m, "hf");
    assert_int_equal(import_with(f, "hf", "out", NULL, &said, NULL), LH_ERR_MANIFEST);
    assert_true(says(&said, "lm_head.weight differs from model.embed_tokens.weight, but"));
    m.t[0] = m.t[--m.count]; // the head is missing
    tiny_write(f, &m, "hf");
    assert_int_equal(import_with(f, "hf", "out-a", NULL, &said, NULL), LH_OK);
    assert_int_equal(dp_manifest_load(folders_path(f, "out-a/model.json"), &is), LH_OK);
    assert_int_equal(is.tensors, TINY_TENSORS - 1);
    assert_string_equal(is.tensor[10].name, "model.norm.weight");
    lh_manifest_free(&is);
    // The head is there with the embedding's values: all zeros.
    struct lh_buf b = lh_buf(1 << 20);
    tiny_add(&m, "lm_head.weight", DP_DTYPE_BF16, 8, 4);
    for (unsigned i = 0; i < m.count; i++) assert_int_equal(dp_st_measure("", &m.t[i]), LH_OK);
    assert_int_equal(dp_st_header(m.t, m.count, NULL, &b), LH_OK);
    lh_put_zeros(&b, m.t[m.count - 1].at + m.t[m.count - 1].bytes);
    folders_bytes(f, "hf/model.safetensors", b.data, b.len);
    assert_int_equal(import_with(f, "hf", "out-b", NULL, &said, NULL), LH_OK);
    assert_true(says(&said, "left out: lm_head.weight, tied to model.embed_tokens.weight\n"));
    lh_buf_free(&b);
    lh_buf_free(&said);
}

IN_FOLDERS(values_that_cannot_be_trained_are_refused, const struct folders *f)
{
    static const struct {
        enum dp_dtype type;
        uint8_t bytes[8];
        lh_err err;
        const char *text;
    } cases[] = {
        {DP_DTYPE_BF16, {0, 0, 0xc0, 0x7f}, LH_ERR_NON_FINITE, "tensor w: value 1 is not a number"},
        {DP_DTYPE_F16, {0, 0, 0, 0xfc}, LH_ERR_NON_FINITE, "tensor w: value 1 is infinite"},
        {DP_DTYPE_F64, {0, 0, 0, 0, 0, 0, 0xf0, 0x7e}, LH_ERR_NON_FINITE, "too large for fp32"},
        {DP_DTYPE_F8_E4M3, {0}, LH_ERR_MANIFEST, "1 of its tensors"},
    };
    struct lh_buf said = lh_buf(1 << 20);
    for (size_t i = 0; i < LH_COUNT(cases); i++) {
        char header[128];
        unsigned width = dp_dtype_bits(cases[i].type) / 8;
        snprintf(header, sizeof header,
                 "{\"w\":{\"dtype\":\"%s\",\"shape\":[%u],\"data_offsets\":[0,8]}}",
                 dp_dtype_name(cases[i].type), 8 / width);
        folders_tensors(f, "w.safetensors", header, cases[i].bytes, 8);
        lh_err err = import_with(f, "w.safetensors", "out", NULL, &said, NULL);
        assert_true(folders_says(err, cases[i].text));
        assert_int_equal(err, cases[i].err);
        assert_false(dp_file_exists(folders_path(f, "out/weights.bin")));
        assert_false(dp_file_exists(folders_path(f, "out/weights.bin.tmp")));
        assert_false(dp_file_exists(folders_path(f, "out/model.json")));
    }
    assert_true(says(&said, "w: F8_E4M3 are quantised weights"));
    folders_tensors(f, "w.safetensors",
                    "{\"s\":{\"dtype\":\"F32\",\"shape\":[],"
                    "\"data_offsets\":[0,4]}}",
                    "abcd", 4);
    assert_int_equal(import_with(f, "w.safetensors", "scalar", NULL, &said, NULL), LH_OK);
    folders_tensors(f, "w.safetensors",
                    "{\"s\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}",
                    "abcd", 4);
    assert_int_equal(import_with(f, "w.safetensors", "out", NULL, &said, NULL), LH_ERR_MANIFEST);
    assert_true(says(&said, "s: 5 dimensions; a run trains tensors of at most 4"));
    lh_buf_free(&said);
}

// Writes a folder of config.json and a model of two float tensors, one of them named `name`.
static void one_tensor(const struct folders *f, const char *config, const char *name)
{
    char header[300];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
             "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
             name);
    static const uint8_t zeros[12];
    folders_tensors(f, "hf/model.safetensors", header, zeros, sizeof zeros);
    folders_text(f, "hf/config.json", config);
}

IN_FOLDERS(names_that_no_loop_would_have_are_refused, const struct folders *f)
{
    static const char *const bad[][2] = {
        {"other", "model.layers.0.block_sparse_moe.experts.0.w1.weight"},
        {"other", "language_model.model.norm.weight"},
        {"other", "vision_tower.vision_model.post_layernorm.weight"},
        {"other", "bert.embeddings.LayerNorm.gamma"},
        {"other", "conv.weight_g"},
        {"gpt_neox", "embed_out.weight"},
        {"vit", "vit.encoder.layer.0.attention.attention.key.bias"},
        {"dinov2", "encoder.layer.0.attention.attention.query.weight"},
        {"swin", "swin.encoder.layers.0.blocks.0.attention.self.query.weight"},
        {"detr", "model.backbone.conv_encoder.model.conv1.weight"},
        {"qwen2_vl", "visual.patch_embed.proj.weight"},
    };
    static const char *const good[][2] = {
        {"other", "model.experts.gate_up_proj"},
        {"other", "model.language_model.norm"},
        {"other", "gamma.weight"},
        {"other", "embed_out.weight"},
        {"gpt_neox", "gpt_neox.embed_out.weight"},
        {"bert", "bert.encoder.layer.0.attention.self.query.weight"},
        {"vi", "vit.encoder.layer.0.attention.attention.key.bias"},
    };
    char config[80];
    struct lh_buf said = lh_buf(1 << 20);
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        snprintf(config, sizeof config, "{\"model_type\": \"%s\"}", bad[i][0]);
        one_tensor(f, config, bad[i][1]);
        assert_int_equal(import_with(f, "hf", "out", NULL, &said, NULL), LH_ERR_MANIFEST);
        assert_true(says(&said, bad[i][1]));
        assert_true(says(&said, "begin the run in Python, longhaul.save_initial(model, FOLDER)"));
    }
    for (size_t i = 0; i < LH_COUNT(good); i++) {
        char out[8];
        snprintf(out, sizeof out, "out%zu", i);
        snprintf(config, sizeof config, "{\"model_type\": \"%s\"}", good[i][0]);
        one_tensor(f, config, good[i][1]);
        assert_int_equal(import_with(f, "hf", out, NULL, &said, NULL), LH_OK);
    }
    lh_buf_free(&said);
}

IN_FOLDERS(running_statistics_are_buffers, const struct folders *f)
{
    struct lh_buf said = lh_buf(1 << 20);
    one_tensor(f, "{\"model_type\": \"resnet\"}", "bn.running_mean");
    assert_int_equal(import_with(f, "hf", "out", NULL, &said, NULL), LH_OK);
    assert_true(says(&said, "left out: bn.running_mean, a buffer, not a parameter"));
    one_tensor(f, "{\"model_type\": \"bart\"}", "final_logits_bias");
    assert_int_equal(import_with(f, "hf", "other", NULL, &said, NULL), LH_OK);
    assert_true(says(&said, "left out: final_logits_bias, a buffer, not a parameter"));
    lh_buf_free(&said);
}

IN_FOLDERS(words_of_python_in_config_json_are_read, const struct folders *f)
{
    struct lh_buf said = lh_buf(1 << 20);
    one_tensor(f,
               "{\"model_type\": \"mamba2\", \"a\": [0.0, Infinity], \"b\": -Infinity, "
               "\"c\": NaN, \"d\": \"Infinity \\\" NaN\"}",
               "v");
    assert_int_equal(import_with(f, "hf", "out", NULL, &said, NULL), LH_OK);
    lh_buf_free(&said);
}

IN_FOLDERS(files_that_are_not_what_they_seem_are_named, const struct folders *f)
{
    struct lh_buf said = lh_buf(1 << 20);
    folders_text(f, "lfs/model.safetensors",
                 "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    lh_err err = import_with(f, "lfs", "out", NULL, &said, NULL);
    assert_true(folders_says(err, "is a Git LFS pointer, and not the file itself: `git lfs pull`"));
    one_tensor(f, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "v");
    err = import_with(f, "hf", "out", NULL, &said, NULL);
    assert_true(folders_says(err, "config.json is a Git LFS pointer"));
    folders_text(f, "peft/adapter_config.json", "{}");
    folders_text(f, "peft/adapter_model.safetensors", "");
    err = import_with(f, "peft", "out", NULL, &said, NULL);
    assert_int_equal(err, LH_ERR_NOT_FOUND);
    assert_true(folders_says(err, "peft holds an adapter of PEFT, and not a whole model"));
    one_tensor(f, "{}", "v");
    assert_int_equal(unlink(folders_path(f, "hf/config.json")), 0);
    assert_int_equal(symlink("../../blobs/0123abcd", folders_path(f, "hf/config.json")), 0);
    err = import_with(f, "hf", "out", NULL, &said, NULL); // not treated as missing
    assert_true(folders_says(err, "config.json is a link to ../../blobs/0123abcd, which is not"));
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < LH_COUNT(names); i++) {
        char name[64], dir[8];
        snprintf(dir, sizeof dir, "link%zu", i);
        snprintf(name, sizeof name, "%s/config.json", dir);
        folders_text(f, name, "{}");
        snprintf(name, sizeof name, "%s/%s", dir, names[i]);
        assert_int_equal(symlink("../../blobs/0123abcd", folders_path(f, name)), 0);
        err = import_with(f, dir, "out", NULL, &said, NULL);
        assert_int_equal(err, LH_ERR_NOT_FOUND);
        assert_true(folders_says(err, "is a link to ../../blobs/0123abcd, which is not there"));
    }
    lh_buf_free(&said);
}

// In a family without a list of tensors, a head is left out if its bytes equal the embedding's and
// the config does not say that the head is separate.
IN_FOLDERS(a_head_that_is_the_embedding_again_is_left_out, const struct folders *f)
{
    struct lh_buf said = lh_buf(1 << 20);
    static const char header[] =
        "{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
        "\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],"
        "\"data_offsets\":[8,16]}}";
    static const struct {
        const char *config;
        uint8_t last;
        bool tied;
    } cases[] = {
        {"{\"model_type\": \"gemma\"}", 0, true},
        {"{\"model_type\": \"x\", \"text_config\": {\"tie_word_embeddings\": true}}", 0, true},
        {"{\"model_type\": \"x\", \"tie_word_embeddings\": false}", 0, false},
        {"{\"model_type\": \"x\"}", 1, false}};
    for (size_t i = 0; i < LH_COUNT(cases); i++) {
        char out[8];
        uint8_t bytes[16] = {[15] = cases[i].last};
        snprintf(out, sizeof out, "out%zu", i);
        folders_tensors(f, "hf/model.safetensors", header, bytes, sizeof bytes);
        folders_text(f, "hf/config.json", cases[i].config);
        assert_int_equal(import_with(f, "hf", out, NULL, &said, NULL), LH_OK);
        bool left = strstr((const char *)said.data,
                           "left out: lm_head.weight, tied to model.embed_tokens.weight");
        assert_int_equal(left, cases[i].tied);
    }
    lh_buf_free(&said);
}

IN_FOLDERS(a_tied_model_may_hold_the_head_alone, const struct folders *f)
{
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    struct lh_buf said = lh_buf(1 << 20);
    m.count--; // the embedding is the last one
    char config[600];
    snprintf(config, sizeof config, "{\"tie_word_embeddings\":true,%s", TINY_CONFIG + 1);
    m.config = config;
    tiny_write(f, &m, "hf");
    assert_int_equal(import_with(f, "hf", "out", NULL, &said, NULL), LH_OK);
    struct lh_buf text = lh_buf(1 << 20);
    assert_int_equal(dp_file_read(folders_path(f, "out/model.json"), &text), LH_OK);
    lh_put_u8(&text, 0);
    assert_non_null(strstr((const char *)text.data, "\"model.embed_tokens.weight\""));
    assert_null(strstr((const char *)text.data, "lm_head"));
    lh_buf_free(&text);
    lh_buf_free(&said);
}

// ---------------------------------------------------------------- config.json

static bool has_none(const void *arg, const char *name)
{
    (void)arg, (void)name;
    return false;
}

static lh_err family_of(const char *config, struct dp_family *out)
{
    json_t *json = json_loads(config, 0, NULL);
    assert_non_null(json);
    lh_err err = dp_family_read(json, has_none, NULL, 0, out);
    json_decref(json);
    out->type = NULL; // it borrowed from the JSON
    return err;
}

#define SIZES                                                                                      \
    "\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,\"num_attention_heads\":"  \
    "2,\"vocab_size\":16,\"hidden_act\":\"silu\""

IN_FOLDERS(families_are_told_apart, void *unused)
{
    static const struct {
        const char *config;
        unsigned wants; // 0: unknown family
        const char *why_not;
    } cases[] = {
        {"{\"model_type\":\"llama\"," SIZES "}", 12, NULL},
        {"{\"model_type\":\"llama\"," SIZES ",\"attention_bias\":true}", 16, "biases"},
        {"{\"model_type\":\"llama\"," SIZES ",\"mlp_bias\":true}", 15, "biases"},
        {"{\"model_type\":\"llama\"," SIZES ",\"head_dim\":8}", 12, "heads of another size"},
        {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", 12,
         "scaled"},
        {"{\"model_type\":\"llama\"," SIZES ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", 12,
         "scaled"},
        {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":64}", 12, "a sliding window"},
        {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":4096}", 12, NULL},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"sliding_window\":64}", 15, NULL},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"tie_word_embeddings\":true}", 14, NULL},
        {"{\"model_type\":\"qwen3\"," SIZES "}", 14, "biases or norms"},
        {"{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_layer\":2,\"n_positions\":4,\"vocab_size\":9}",
         28, "another architecture"},
        {"{\"model_type\":\"llama\",\"architectures\":[\"LlamaForSequenceClassification\"]}", 0,
         "another architecture"},
        {"{\"model_type\":\"mamba\"}", 0, "another architecture"},
        {"{}", 0, "another architecture"},
    };
    for (size_t i = 0; i < LH_COUNT(cases); i++) {
        struct dp_family f;
        assert_int_equal(family_of(cases[i].config, &f), LH_OK);
        assert_int_equal(f.wants, cases[i].wants);
        assert_int_equal(f.known, cases[i].wants > 0);
        assert_int_equal(f.built_in, !cases[i].why_not);
        if (cases[i].why_not) assert_non_null(strstr(f.why_not, cases[i].why_not));
        dp_family_free(&f);
    }
}

IN_FOLDERS(a_config_that_makes_no_sense_is_refused, void *unused)
{
    static const struct {
        const char *config, *text;
    } cases[] = {
        {"{\"model_type\":\"llama\"}", "\"vocab_size\" is missing, which a model of type llama"},
        {"{\"model_type\":\"llama\"," SIZES ",\"head_dim\":-1}", "\"head_dim\" must be a whole"},
        {"{\"model_type\":\"llama\"," SIZES ",\"head_dim\":1e9}", "\"head_dim\" must be a whole"},
        {"{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_layer\":5000,\"n_positions\":4,"
         "\"vocab_size\":9}",
         "5000 layers, at most 1024"},
        {"{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{}}", "quantised"},
    };
    for (size_t i = 0; i < LH_COUNT(cases); i++) {
        struct dp_family f;
        lh_err err = family_of(cases[i].config, &f);
        assert_int_not_equal(err, LH_OK);
        assert_true(folders_says(err, cases[i].text));
        assert_null(f.want);
    }
}

// An unknown family keeps every float tensor, with layer 10 after layer 9.
IN_FOLDERS(numbers_in_names_are_ordered_by_value, const struct folders *f)
{
    struct tiny m = {.config = "{\"model_type\":\"other\",\"architectures\":[\"Other\"]}"};
    static const char *const order[] = {"a", "h.2.w", "h.9.a", "h.9.b", "h.10.a", "z"};
    static const unsigned shuffled[] = {4, 2, 0, 5, 1, 3};
    struct lh_buf said = lh_buf(1 << 20);
    struct lh_manifest is;
    for (unsigned i = 0; i < 6; i++) tiny_add(&m, order[shuffled[i]], DP_DTYPE_F32, 2, 0);
    tiny_write(f, &m, "hf");
    assert_int_equal(import_with(f, "hf", "out", NULL, &said, NULL), LH_OK);
    assert_true(says(&said, "no list of tensors is known for models of type other"));
    assert_int_equal(dp_manifest_load(folders_path(f, "out/model.json"), &is), LH_OK);
    for (unsigned i = 0; i < 6; i++) assert_string_equal(is.tensor[i].name, order[i]);
    assert_string_equal(is.model_json, "{\"architecture\":\"Other\",\"model_type\":\"other\"}");
    lh_manifest_free(&is);
    lh_buf_free(&said);
}
