// Saved ledgers: an accepted one encodes to the same bytes.
#include "common/base/check.h"
#include "common/format/ledger.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t job[LH_JOB_BYTES] = "fuzz";
    struct lh_hash manifest = {{0}};
    struct lh_ledger l;
    lh_err err = lh_ledger_create(&l, job, &manifest, 1, 2);
    LH_ASSERT(err == LH_OK);

    struct lh_cursor c = lh_cursor(lh_span(data, size));
    err = lh_ledger_read(&l, &c);
    if (!err) {
        struct lh_buf again = lh_buf(size);
        lh_ledger_write(&l, &again);
        LH_ASSERT(lh_span_equal(lh_buf_span(&again), lh_span(data, size - lh_left(&c))));
        lh_buf_free(&again);
        for (uint32_t i = 0; i < l.rows; i++)
            LH_ASSERT(lh_ledger_row(&l, l.row[i].worker) == &l.row[i]);
    }
    lh_ledger_free(&l);
    return 0;
}
