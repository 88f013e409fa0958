// A run that begins from an imported model, or trains one with a command.
#include "deploy/models/import.h"
#include "deploy/up/up_dir.h"
#include "tests/unit/deploy/models/tiny.h"
#include "tests/unit/deploy/up/up_rig.h"

static void import_tiny(const struct folders *f, struct tiny *m, const char *out)
{
    struct dp_import q = {.from = folders_path(f, "hf"), .out = folders_path(f, out), .shards = 1};
    tiny_write(f, m, "hf");
    assert_int_equal(dp_import(&q), LH_OK);
    dp_import_free(&q);
}

// Checks the nodes of a run with a command, and the settings of a worker that has one.
static void check_commanded(struct dp_up *up)
{
    struct lh_buf file = lh_buf(1 << 16);
    assert_int_equal(up->nodes, 1 + 1 + 2 + 2);
    struct dp_node *worker = &up->node[3], *trainer = dp_trainer_of(up, worker);
    assert_string_equal(trainer->name, "us-0.trainer");
    assert_string_equal(trainer->config, worker->config);
    assert_int_equal(dp_file_read(worker->config, &file), LH_OK);
    lh_put_u8(&file, 0);
    assert_non_null(strstr((char *)file.data, "trainer.kind: \"external\""));
    assert_non_null(strstr((char *)file.data, "ranks.count: \"2\""));
    lh_buf_free(&file);
}

TEST(a_folder_of_hugging_faces_is_imported)
{
    struct folders f;
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    struct lh_buf yaml = lh_buf(1 << 16);
    char path[DP_PATH_BYTES];
    folders_start(&f);
    tiny_write(&f, &m, "hf");
    dp_put(&yaml,
           "run: tiny\nbudget_tokens: 1000\nmodel: {import: %s, context: 8}\n"
           "coordinator: {region: eu}\nservers:\n  - {name: s0, region: eu, shards: [0, 1]}\n"
           "regions:\n  eu: {}\n",
           folders_path(&f, "hf"));
    lh_put_u8(&yaml, 0);
    assert_int_equal(dp_path(run_dir, "%s/whole", root), LH_OK);
    struct dp_up *up = open_up((const char *)yaml.data);
    all(up);
    assert_int_equal(up->manifest.tensors, TINY_TENSORS);
    assert_int_equal(dp_path(path, "%s/import/model.json", run_dir), LH_OK);
    assert_true(dp_file_exists(path));
    lh_manifest_free(&up->manifest);
    assert_int_equal(dp_dir_model(up), LH_OK); // a second call takes the existing files
    lh_manifest_free(&up->manifest);
    assert_int_equal(remove(folders_path(&f, "hf/config.json")), 0);
    lh_err err = dp_dir_model(up);
    assert_int_equal(err, LH_ERR_NOT_FOUND);
    assert_true(folders_says(err, "has neither model.json"));
    close_up(up);
    lh_buf_free(&yaml);
    folders_end(&f);
}

TEST(an_imported_model_is_where_a_run_begins)
{
    struct folders f;
    struct tiny m = tiny_llama(DP_DTYPE_BF16);
    struct lh_buf yaml = lh_buf(1 << 16), is = lh_buf(1 << 16), was = lh_buf(1 << 16);
    folders_start(&f);
    import_tiny(&f, &m, "in");
    dp_put(&yaml,
           "run: tiny\nbudget_tokens: 1000\nmodel: {import: %s, context: 8}\n"
           "coordinator: {region: eu}\nservers:\n  - {name: s0, region: eu, shards: [0, 1]}\n"
           "regions:\n  eu: {}\n",
           folders_path(&f, "in"));
    lh_put_u8(&yaml, 0);
    assert_int_equal(dp_path(run_dir, "%s/imported", root), LH_OK);
    struct dp_up *up = open_up((const char *)yaml.data);
    all(up);
    assert_int_equal(up->manifest.shards, 2); // from the topology, not from the import
    assert_int_equal(up->manifest.tensors, TINY_TENSORS);
    assert_int_equal(up->shape.context, 8);
    assert_int_equal(up->shape.kv_heads, 1);
    assert_int_equal(dp_file_read(folders_path(&f, "in/weights.bin"), &was), LH_OK);
    char path[DP_PATH_BYTES];
    assert_int_equal(dp_path(path, "%s/weights.bin", run_dir), LH_OK);
    assert_int_equal(dp_file_read(path, &is), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&is), lh_buf_span(&was)));
    // In the folder of a finished run, final.bin with the final parameters is taken.
    assert_int_equal(dp_file_write(folders_path(&f, "in/final.bin"), lh_buf_span(&was), 0666),
                     LH_OK);
    was.data[0] ^= 1;
    assert_int_equal(dp_file_write(folders_path(&f, "in/weights.bin"), lh_buf_span(&was), 0666),
                     LH_OK);
    assert_int_equal(remove(path), 0);
    assert_int_equal(dp_dir_prepare(up), LH_OK);
    lh_buf_clear(&was);
    assert_int_equal(dp_file_read(path, &was), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&is), lh_buf_span(&was)));
    assert_int_equal(remove(folders_path(&f, "in/final.bin")), 0);
    // A model of a shape that the built-in trainer does not support is refused, with the reason.
    m.config = "{\"model_type\":\"other\"}";
    assert_int_equal(remove(folders_path(&f, "in/model.json")), 0);
    assert_int_equal(remove(folders_path(&f, "in/weights.bin")), 0);
    import_tiny(&f, &m, "in");
    lh_manifest_free(&up->manifest);
    lh_err err = dp_dir_model(up);
    assert_int_equal(err, LH_ERR_CONFIG);
    assert_true(folders_says(err, "a region without a command has the built-in trainer"));
    // A command trains any model, in the topology's shards; its loss is not reported.
    close_up(up);
    yaml.len--;
    dp_put(&yaml, "  us: {ranks: 2}\ncommand: train\nserver: {coordinator.data: own}\n");
    lh_put_u8(&yaml, 0);
    assert_int_equal(dp_path(run_dir, "%s/commanded", root), LH_OK);
    up = open_up((const char *)yaml.data);
    all(up);
    assert_int_equal(dp_dir_own_data(up), LH_OK);
    assert_int_equal(up->units.count, 1);
    assert_true(!up->shaped && up->unjudged && up->manifest.shards == 2);
    assert_int_equal(up->manifest.tensors, TINY_TENSORS);
    check_commanded(up);
    lh_units_free(&up->units);
    close_up(up);
    folders_end(&f);
    lh_buf_free(&yaml);
    lh_buf_free(&is);
    lh_buf_free(&was);
}

int main(void)
{
    return test_run(setup, teardown);
}
