// The built-in trainer behind worker/train/trainer.h, fed by a loader of this test.
#include "tests/unit/worker/train/trainer_case.h"

// ---- tests --------------------------------------------------------------------------------------

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_FIXTURE(learns_a_repeating_text, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *t = trainer_of(f, &c);
    assert_int_equal(t->ops->step_tokens(t), BATCH * SEQUENCE);
    double first = take_step(t, 0).loss, last = first;
    assert_true(fabs(first - log(256.0)) < 0.1); // 5.545: untrained
    for (uint64_t i = 1; i < 150; i++) last = take_step(t, i).loss;
    assert_true(last < 0.5); // the text's own entropy is near 0
    t->ops->destroy(t);
}

IN_FIXTURE(two_runs_agree_to_the_bit, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *a = trainer_of(f, &c), *b = trainer_of(f, &c);
    for (uint64_t i = 0; i < 10; i++) {
        struct wk_step_out x = take_step(a, i), y = take_step(b, i);
        assert_true(x.loss == y.loss && x.grad_norm == y.grad_norm);
    }
    assert_true(equal_parameters(a, b, f->manifest.values));
    struct lh_buf x = lh_buf(1 << 24), y = lh_buf(1 << 24);
    assert_int_equal(a->ops->save(a, &x), LH_OK);
    assert_int_equal(b->ops->save(b, &y), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&x), lh_buf_span(&y)));
    lh_buf_free(&x);
    lh_buf_free(&y);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

IN_FIXTURE(saved_state_continues_to_the_bit, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *a = trainer_of(f, &c), *b = trainer_of(f, &c);
    struct lh_buf saved = lh_buf(1 << 24);
    for (uint64_t i = 0; i < 5; i++) take_step(a, i);
    lh_put_u8(&saved, 77); // save() must append
    assert_int_equal(a->ops->save(a, &saved), LH_OK);
    share_parameters(a, b, f->manifest.values);
    assert_int_equal(b->ops->load(b, lh_span(saved.data + 1, saved.len - 1)), LH_OK);
    for (uint64_t i = 5; i < 10; i++) {
        take_step(a, i);
        take_step(b, i);
    }
    assert_true(equal_parameters(a, b, f->manifest.values));
    lh_buf_free(&saved);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

// A save includes the state of a held learning rate.
IN_FIXTURE(a_held_rate_survives_a_save, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    c.warmup = (struct wk_warmup_conf){
        .threshold = 1e-9, .hold = 0.25, .cap_tokens = 700, .ramp_tokens = 100};
    struct wk_trainer *a = trainer_of(f, &c), *b = trainer_of(f, &c);
    struct lh_buf saved = lh_buf(1 << 24), again = lh_buf(1 << 24);
    for (uint64_t i = 0; i < 5; i++) {
        struct wk_step_out out = take_step(a, i); // the credited tokens: 100 a step
        assert_true(fabs(out.rate / 3e-3 - 0.25) < 1e-6 && out.noise > 0);
    }
    assert_int_equal(a->ops->save(a, &saved), LH_OK);
    assert_int_equal(b->ops->load(b, lh_buf_span(&saved)), LH_OK);
    assert_int_equal(b->ops->save(b, &again), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&saved), lh_buf_span(&again)));
    share_parameters(a, b, f->manifest.values);
    for (uint64_t i = 5; i < 12; i++) { // released by the cap of 700 tokens, full from 800 on
        struct wk_step_out x = take_step(a, i), y = take_step(b, i);
        assert_true(x.rate == y.rate && x.noise == y.noise && x.loss == y.loss);
        assert_true(fabs(x.rate / 3e-3 - (i <= 7 ? 0.25 : 1)) < 1e-6);
        assert_true((x.noise > 0) == (i < 7)); // measured no longer
    }
    struct wk_trainer *later = trainer_of(f, &c); // a released warm-up stays released after a load
    lh_buf_clear(&saved);
    assert_int_equal(a->ops->save(a, &saved), LH_OK);
    assert_int_equal(later->ops->load(later, lh_buf_span(&saved)), LH_OK);
    struct wk_step_out out = take_step(later, 12);
    assert_true(fabs(out.rate / 3e-3 - 1) < 1e-6 && out.noise == 0);
    later->ops->destroy(later);
    lh_buf_free(&saved);
    lh_buf_free(&again);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

// Norms of every tensor against the parameters before and after the step; reading them changes
// nothing.
IN_FIXTURE(norms_are_of_the_step, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *a = trainer_of(f, &c), *b = trainer_of(f, &c);
    float *before = copy_parameters(a, f->manifest.values);
    struct wk_tensor_norms *norms = calloc(f->manifest.tensors, sizeof *norms);
    assert_non_null(norms);
    struct wk_piece piece = {1, 5, BATCH * SEQUENCE};
    struct wk_step_in in = {.piece = &piece, .pieces = 1, .learning_rate = 3e-3f, .norms = norms};
    struct wk_step_out x, y;
    assert_int_equal(a->ops->step(a, &in, &x), LH_OK);
    in.norms = NULL;
    assert_int_equal(b->ops->step(b, &in, &y), LH_OK);
    assert_true(equal_parameters(a, b, f->manifest.values));
    float *after = copy_parameters(a, f->manifest.values);
    double gradient = 0;
    for (uint32_t i = 0; i < f->manifest.tensors; i++) {
        const struct lh_tensor *t = &f->manifest.tensor[i];
        double weight = 0, update = 0;
        for (uint64_t k = t->offset; k < t->offset + t->len; k++) {
            weight += (double)after[k] * (double)after[k];
            update +=
                ((double)after[k] - (double)before[k]) * ((double)after[k] - (double)before[k]);
        }
        assert_true(fabs(norms[i].weight - sqrt(weight)) < 1e-9 * (1 + sqrt(weight)));
        assert_true(fabs(norms[i].update - sqrt(update)) < 1e-9 && update > 0);
        gradient += norms[i].gradient * norms[i].gradient;
    }
    assert_true(fabs(sqrt(gradient) / x.grad_norm - 1) < 1e-9);
    free(before);
    free(after);
    free(norms);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

IN_FIXTURE(load_refuses_other_bytes, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *t = trainer_of(f, &c);
    struct lh_buf saved = lh_buf(1 << 24), before = lh_buf(1 << 24);
    take_step(t, 0);
    assert_int_equal(t->ops->save(t, &saved), LH_OK);
    assert_int_equal(t->ops->save(t, &before), LH_OK);

    assert_int_equal(t->ops->load(t, lh_span(saved.data, 0)), LH_ERR_MALFORMED);
    assert_int_equal(t->ops->load(t, lh_span(saved.data, 40)), LH_ERR_MALFORMED);
    assert_int_equal(t->ops->load(t, lh_span(saved.data, saved.len - 1)), LH_ERR_MALFORMED);
    static const size_t places[] = {0, 4, 8, 40, 48, 60, 90, 100, 5000};
    for (size_t i = 0; i <= LH_COUNT(places); i++) {
        size_t at = i < LH_COUNT(places) ? places[i] : saved.len - 1;
        saved.data[at] ^= 0x10;
        assert_int_equal(t->ops->load(t, lh_buf_span(&saved)), LH_ERR_MALFORMED);
        saved.data[at] ^= 0x10;
    }

    // A model of the same size with another hash.
    struct lh_manifest other;
    assert_int_equal(wk_model_manifest(&f->shape, 3, &other), LH_OK);
    c.manifest = &other;
    struct wk_trainer *stranger = trainer_of(f, &c);
    assert_int_equal(stranger->ops->load(stranger, lh_buf_span(&saved)), LH_ERR_MALFORMED);
    stranger->ops->destroy(stranger);
    lh_manifest_free(&other);

    // The refused loads left the state unchanged.
    lh_buf_clear(&saved);
    assert_int_equal(t->ops->save(t, &saved), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&saved), lh_buf_span(&before)));
    lh_buf_free(&saved);
    lh_buf_free(&before);
    t->ops->destroy(t);
}

// 4 passes of 1 sequence equal 1 pass of 4, up to rounding.
IN_FIXTURE(accumulation_is_a_larger_batch, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *whole = trainer_of(f, &c);
    c.batch = 1;
    c.accumulate = BATCH;
    struct wk_trainer *parts = trainer_of(f, &c);
    assert_int_equal(parts->ops->step_tokens(parts), BATCH * SEQUENCE);
    struct wk_step_out a = take_step(whole, 3), b = take_step(parts, 3);
    assert_true(fabs(a.loss - b.loss) < 1e-6);
    assert_true(fabs(a.grad_norm / b.grad_norm - 1.0) < 1e-5);
    whole->ops->destroy(whole);
    parts->ops->destroy(parts);
}

IN_FIXTURE(a_short_step_is_a_mean_over_what_came, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *t = trainer_of(f, &c);
    struct wk_piece once = {2, 11, SEQUENCE}, twice[2] = {once, once};
    struct wk_step_in one = {.piece = &once, .pieces = 1}, two = {.piece = twice, .pieces = 2};
    struct wk_step_out a, b;
    assert_int_equal(t->ops->step(t, &one, &a), LH_OK);
    assert_int_equal(t->ops->step(t, &two, &b), LH_OK);
    assert_true(fabs(a.loss - b.loss) < 1e-6);
    assert_true(fabs(a.grad_norm / b.grad_norm - 1.0) < 1e-5);
    t->ops->destroy(t);
}

// After one step the first moments are 0.1 * the clipped gradient.
static double first_moment_norm(struct wk_trainer *t, uint64_t values)
{
    struct lh_buf saved = lh_buf(1 << 24);
    assert_int_equal(t->ops->save(t, &saved), LH_OK);
    struct lh_cursor c = lh_cursor(lh_buf_span(&saved));
    (void)lh_get(&c, 96);
    double sum = 0.0;
    for (uint64_t i = 0; i < values; i++) {
        double m = (double)lh_get_f32(&c);
        sum += m * m;
    }
    lh_buf_free(&saved);
    return sqrt(sum);
}

IN_FIXTURE(clips_the_global_norm, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    static const double limits[] = {0.0, 1e-3, 1e3};
    for (size_t i = 0; i < LH_COUNT(limits); i++) {
        c.clip = limits[i];
        struct wk_trainer *t = trainer_of(f, &c);
        double norm = take_step(t, 0).grad_norm, want = norm;
        if (limits[i] > 0.0 && limits[i] < norm) want = limits[i];
        assert_true(norm > 1e-2);
        double got = first_moment_norm(t, f->manifest.values) / 0.1;
        assert_true(fabs(got / want - 1.0) < 1e-3); // tolerance for the 1e-6 in torch's formula
        t->ops->destroy(t);
    }
}

// Decay shrinks matrices by rate * decay of their old values, and changes no other tensor.
IN_FIXTURE(decays_matrices_only, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    c.weight_decay = 0.0;
    struct wk_trainer *plain = trainer_of(f, &c), *before = trainer_of(f, &c);
    c.weight_decay = 0.5;
    struct wk_trainer *decayed = trainer_of(f, &c);
    take_step(plain, 0);
    take_step(decayed, 0);
    float *a = copy_parameters(plain, f->manifest.values);
    float *b = copy_parameters(decayed, f->manifest.values);
    float *start = copy_parameters(before, f->manifest.values);
    for (uint32_t i = 0; i < f->manifest.tensors; i++) {
        const struct lh_tensor *t = &f->manifest.tensor[i];
        for (uint64_t j = t->offset; j < t->offset + t->len; j++) {
            double shrink = t->dims == 2 ? 3e-3 * 0.5 * (double)start[j] : 0.0;
            assert_true(fabs((double)a[j] - (double)b[j] - shrink) <= (t->dims == 2 ? 1e-8 : 0.0));
        }
    }
    free(a);
    free(b);
    free(start);
    plain->ops->destroy(plain);
    before->ops->destroy(before);
    decayed->ops->destroy(decayed);
}

IN_FIXTURE(throttle_follows_the_tokens, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    c.tokens_per_s = 1000.0;
    struct wk_trainer *t = trainer_of(f, &c);
    assert_int_equal(take_step(t, 0).least_ns, (int64_t)BATCH * SEQUENCE * 1000000);
    t->ops->announce(t, 7, true);
    assert_int_equal(f->loader.announced, 7);
    t->ops->announce(t, 6, false);
    assert_int_equal(f->loader.withdrawn, 6);
    assert_int_equal(f->loader.announced, 7);
    t->ops->destroy(t);
}

// A unit's number in a later epoch reads the same data.
IN_FIXTURE(a_later_epoch_reads_the_same_unit, struct fixture *f)
{
    const struct wk_builtin_conf c = conf_of(f);
    const uint64_t units = wk_loader_units(&f->loader);
    struct wk_piece first = {2, 11, SEQUENCE}, later = {2 + 3 * units, 11, SEQUENCE};
    struct wk_step_in one = {.piece = &first, .pieces = 1, .learning_rate = 1e-3f};
    struct wk_step_in other = {.piece = &later, .pieces = 1, .learning_rate = 1e-3f};
    struct wk_step_out out[2];
    struct wk_trainer *a = trainer_of(f, &c), *b = trainer_of(f, &c);
    assert_int_equal(a->ops->step(a, &one, &out[0]), LH_OK);
    assert_int_equal(b->ops->step(b, &other, &out[1]), LH_OK);
    assert_true(out[0].loss == out[1].loss);
    assert_true(equal_parameters(a, b, f->manifest.values));
    a->ops->announce(a, 7 + units, true);
    assert_int_equal(f->loader.announced, 7);
    a->ops->announce(a, 6 + 2 * units, false);
    assert_int_equal(f->loader.withdrawn, 6);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

// Bad pieces, a failing loader, a NaN: each gives an error and changes nothing.
IN_FIXTURE(a_failed_step_changes_nothing, struct fixture *f)
{
    struct wk_builtin_conf c = conf_of(f);
    struct wk_trainer *t = trainer_of(f, &c);
    uint64_t values = f->manifest.values, bad = f->manifest.tensor[8].offset;
    struct lh_buf before = lh_buf(1 << 24), after = lh_buf(1 << 24);
    take_step(t, 0);
    assert_int_equal(t->ops->save(t, &before), LH_OK);
    float *had = copy_parameters(t, values);

    struct wk_piece piece = {0, 0, SEQUENCE - 1};
    struct wk_step_in in = {.piece = &piece, .pieces = 1, .learning_rate = 1e-3f};
    struct wk_step_out out;
    assert_int_equal(t->ops->step(t, &in, &out), LH_ERR_INVALID);
    piece.tokens = (BATCH + 1) * SEQUENCE;
    assert_int_equal(t->ops->step(t, &in, &out), LH_ERR_INVALID);
    piece.tokens = 0;
    assert_int_equal(t->ops->step(t, &in, &out), LH_ERR_INVALID);
    assert_false(out.unread);
    piece = (struct wk_piece){10 + wk_loader_units(&f->loader), 0, SEQUENCE};
    assert_int_equal(t->ops->step(t, &in, &out), LH_ERR_NOT_FOUND);
    assert_true(out.unread && out.unit == piece.unit);
    piece.unit = 0;
    assert_true(has_parameters(t, had, values));
    had[bad] = NAN;
    set_parameters(t, had, values);
    assert_int_equal(t->ops->step(t, &in, &out), LH_ERR_NON_FINITE);
    assert_non_null(strstr(lh_err_text(LH_ERR_NON_FINITE), "gradient of model."));
    assert_true(has_parameters(t, had, values));
    assert_int_equal(t->ops->save(t, &after), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&before), lh_buf_span(&after)));
    lh_buf_free(&before);
    lh_buf_free(&after);
    free(had);
    t->ops->destroy(t);
}

IN_FIXTURE(refuses_a_bad_configuration, struct fixture *f)
{
    struct wk_trainer *t;
    struct wk_builtin_conf c = conf_of(f);
    c.sequence = SEQUENCE + 1; // longer than the context
    assert_int_equal(wk_builtin_create(&c, &t), LH_ERR_CONFIG);
    c = conf_of(f);
    c.batch = 0;
    assert_int_equal(wk_builtin_create(&c, &t), LH_ERR_CONFIG);
    c = conf_of(f);
    c.beta2 = 1.0;
    assert_int_equal(wk_builtin_create(&c, &t), LH_ERR_CONFIG);
    c = conf_of(f);
    c.clip = NAN;
    assert_int_equal(wk_builtin_create(&c, &t), LH_ERR_CONFIG);
    c = conf_of(f);
    struct lh_tensor *first = &f->manifest.tensor[0];
    first->name[0] = 'M';
    assert_int_equal(wk_builtin_create(&c, &t), LH_ERR_MANIFEST);
    first->name[0] = 'm';
    assert_int_equal(wk_builtin_create(&c, &t), LH_OK);
    t->ops->destroy(t);
}
