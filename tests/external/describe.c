// A loop describes its ranks and tensors before it connects: each form that is taken, and each that
// is refused.
#include "tests/external/client_rig.h"

// ---------------------------------------------------------------- DLPack

struct dl { // dlpack.h
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

IN_RIG(reads_dlpack, struct rig *r)
{
    int64_t dims[] = {73, 137}, strides[] = {137, 1}, turned[] = {1, 73};
    struct dl d = {r->mine, 1, 0, 2, 2, 32, 1, dims, strides, 0};
    d.strides = turned;
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &d, NULL), LONGHAUL_E_INVALID);
    d.strides = strides;
    d.code = 0; // integers
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &d, NULL), LONGHAUL_E_INVALID);
    d.code = 2;
    d.device_type = 8; // Metal
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &d, NULL), LONGHAUL_E_UNSUPPORTED);
    d.device_type = 1;
    assert_int_equal(73 * 137, N);
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &d, NULL), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
    check_rounds(r);
}

// The other forms of memory that can be trained, and what must not pass for one.
IN_RIG(reads_each_form_of_dlpack, struct rig *r)
{
    static uint16_t half[N];
    int64_t dims[9] = {N, 1, 1, 1, 1, 1, 1, 1, 1}, none[] = {0}, odd[] = {1, 77};
    struct dl sound = {r->mine, 1, 0, 1, 2, 32, 1, dims, NULL, 0};
    struct dl bad[] = {sound, sound, sound, sound, sound, sound};
    bad[0].bits = 16; // half precision
    bad[1].code = 4;  // bfloat of 32 bits
    bad[2].lanes = 2;
    bad[3].ndim = 9;
    bad[4].shape = none;
    bad[5].ndim = -1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &bad[i], NULL), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", NULL, NULL), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_parameter_dlpack(r->c, NULL, &sound, NULL), LONGHAUL_E_INVALID);
    struct dl pinned = sound, bf16 = sound;
    pinned.device_type = 3;
    pinned.data = r->mine;
    pinned.byte_offset = sizeof(float);
    pinned.ndim = 2;
    pinned.strides = odd; // the stride of one row says nothing
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &pinned, NULL), LONGHAUL_OK);
    bf16.code = 4;
    bf16.bits = 16;
    bf16.data = r->mine + N - 1;
    assert_int_equal(longhaul_parameter_dlpack(r->c, "b", &bf16, NULL), LONGHAUL_E_INVALID);
    assert_non_null(strstr(longhaul_text(r->c), "w and b share memory"));
    bf16.data = half;
    assert_int_equal(longhaul_parameter_dlpack(r->c, "b", &bf16, NULL), LONGHAUL_OK);
    struct longhaul_state s = {.size = sizeof s};
    assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    assert_int_equal(s.shadow_bytes, 4 * N); // the bf16's own
}

// ---------------------------------------------------------------- tensors and ranks

IN_RIG(says_where_there_is_no_cuda, struct rig *r)
{
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    char *was = strdup(getenv("LONGHAUL_CUDART") ? getenv("LONGHAUL_CUDART") : "");
    setenv("LONGHAUL_CUDART", "/nonexistent.so", 1);
    t.memory = LONGHAUL_CUDA;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_E_UNSUPPORTED);
    assert_non_null(strstr(longhaul_text(r->c), "libcudart"));
    setenv("LONGHAUL_CUDART", was, 1);
    free(was);
}

IN_RIG(refuses_tied_and_repeated, struct rig *r)
{
    struct longhaul_tensor a = tensor("a", r->mine, LONGHAUL_FP32), b = a, c = a;
    uint64_t one[] = {1};
    assert_int_equal(longhaul_parameter(r->c, &a), LONGHAUL_OK);
    b.name = "b", b.data = r->mine + N - 1, b.shape = one;
    assert_int_equal(longhaul_parameter(r->c, &b), LONGHAUL_E_INVALID);
    assert_non_null(strstr(longhaul_text(r->c), "a and b share memory"));
    c.data = r->view;
    assert_int_equal(longhaul_parameter(r->c, &c), LONGHAUL_E_INVALID);
    c.name = "c", c.dtype = 7;
    assert_int_equal(longhaul_parameter(r->c, &c), LONGHAUL_E_INVALID);
    c.dtype = LONGHAUL_FP32, c.size = 8;
    assert_int_equal(longhaul_parameter(r->c, &c), LONGHAUL_E_INVALID);
}

static int describe(struct rig *r, const char *name, float *data, uint64_t values)
{
    struct longhaul_tensor t = tensor(name, data, LONGHAUL_FP32);
    t.shape = &values;
    return longhaul_parameter(r->c, &t);
}

IN_RIG(neighbours_share_no_memory, struct rig *r)
{
    assert_int_equal(describe(r, "middle", r->mine + 10, 10), LONGHAUL_OK);
    assert_int_equal(describe(r, "before", r->mine + 1, 10), LONGHAUL_E_INVALID);
    assert_int_equal(describe(r, "before", r->mine, 10), LONGHAUL_OK);
    assert_int_equal(describe(r, "behind", r->mine + 19, 10), LONGHAUL_E_INVALID);
    assert_int_equal(describe(r, "behind", r->mine + 20, 10), LONGHAUL_OK);
    struct longhaul_tensor there = tensor("device", r->mine, LONGHAUL_FP32);
    there.memory = LONGHAUL_CUDA; // addresses of a device and of the host are not compared
    assert_int_equal(longhaul_parameter(r->c, &there), LONGHAUL_OK);
}

IN_RIG(refuses_descriptions_beyond_their_bounds, struct rig *r)
{
    static const uint64_t ones[WK_CHANNEL_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    char name[WK_CHANNEL_NAME + 1];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    struct longhaul_tensor t = tensor(name, r->mine, LONGHAUL_FP32);
    struct longhaul_tensor bad[] = {t, t, t, t, t, t, t, t};
    for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) bad[i].name = "w"; // [0]: too long
    bad[1].name = "";
    bad[2].name = NULL;
    bad[3].ndim = WK_CHANNEL_DIMS + 1;
    bad[4].ndim = -1;
    bad[5].shape = NULL;
    bad[6].first = 1, bad[6].count = N; // one value beyond the tensor
    bad[7].memory = 2;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(longhaul_parameter(r->c, &bad[i]), LONGHAUL_E_INVALID);
    t.name = name + 1; // the longest one
    t.shape = ones, t.ndim = WK_CHANNEL_DIMS;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_parameter(r->c, NULL), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_parameter(NULL, &t), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_open(NULL), LONGHAUL_E_INVALID);
}

// A launcher says the rank; what is no rank of a host is a loop of one process.
IN_RIG(takes_its_rank_from_the_launcher, struct rig *r)
{
    static const struct {
        const char *rank, *ranks;
        int err; // the worker expects one rank
    } row[] = {{"1", "2", LONGHAUL_E_REFUSED}, {"0", "64", LONGHAUL_E_REFUSED},
               {"x", "2", LONGHAUL_E_REFUSED}, {"0", "65", LONGHAUL_OK},
               {"2", "2", LONGHAUL_OK},        {"0", "2x", LONGHAUL_OK},
               {"0", "", LONGHAUL_OK},         {"0", "/2", LONGHAUL_OK},
               {"0", ":2", LONGHAUL_OK},       {"0", "4294967298", LONGHAUL_OK}};
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        longhaul_close(r->c);
        setenv("LOCAL_RANK", row[i].rank, 1);
        setenv("LOCAL_WORLD_SIZE", row[i].ranks, 1);
        assert_int_equal(longhaul_open(&r->c), LONGHAUL_OK);
        assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
        assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), row[i].err);
    }
    unsetenv("LOCAL_RANK");
    unsetenv("LOCAL_WORLD_SIZE");
    assert_int_equal(longhaul_ranks(r->c, 0, 1), LONGHAUL_E_STATE); // too late
    longhaul_close(r->c);
    assert_int_equal(longhaul_open(&r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_ranks(r->c, 0, 0), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_ranks(r->c, 0, WK_CHANNEL_RANKS_MAX + 1), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_ranks(r->c, 63, WK_CHANNEL_RANKS_MAX), LONGHAUL_OK);
}

// Structs of a newer header are accepted if the fields that the library does not know are 0.
IN_RIG(structs_may_be_longer_than_the_librarys, struct rig *r)
{
    struct {
        struct longhaul_tensor t;
        uint64_t more;
    } t = {tensor("w", r->mine, LONGHAUL_FP32), 1};
    struct {
        struct longhaul_state s;
        uint64_t more;
    } s = {.s.size = sizeof s, .more = 7};
    t.t.size = sizeof t;
    assert_int_equal(longhaul_parameter(r->c, &t.t), LONGHAUL_E_INVALID);
    t.more = 0;
    assert_int_equal(longhaul_parameter(r->c, &t.t), LONGHAUL_OK);
    assert_int_equal(longhaul_state(r->c, &s.s), LONGHAUL_OK);
    assert_true(s.s.size == sizeof s.s && s.more == 7);
    s.s.size = sizeof s.s - 1;
    assert_int_equal(longhaul_state(r->c, &s.s), LONGHAUL_E_INVALID);
}

IN_RIG(a_rank_may_hold_none_of_a_tensor, struct rig *r)
{
    struct longhaul_tensor t = tensor("w", NULL, LONGHAUL_BF16);
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_E_INVALID); // all values, at NULL
    t.first = N - 1;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_E_INVALID); // none, but not at the end
    t.first = N;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    // The only rank holds no values, so the ranks do not add up to the model.
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_E_MODEL);
    assert_non_null(strstr(longhaul_text(r->c), "do not add up to the whole"));
}

IN_RIG(refuses_another_model, struct rig *r)
{
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    r->wrong_model = true;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_E_MODEL);
    assert_non_null(strstr(longhaul_text(r->c), "no tensor w"));
    uint64_t half[] = {N / 2};
    longhaul_close(r->c);
    assert_int_equal(longhaul_open(&r->c), LONGHAUL_OK);
    t.shape = half;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_E_MODEL);
}

int main(void)
{
    setenv("LONGHAUL_CUDART", CUDART, 1);
    return test_run(NULL, NULL);
}
