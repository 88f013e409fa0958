// Ranks over TCP whose sockets accept nothing: a greeting that can't be sent in time ends the
// attempt with a message, and the next attempt works. Socket buffers are larger than a greeting, so
// the test fails the wait for space and not the socket.
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/fault/fault.h"
#include "tests/test.h"
#include "worker/ranks/comm/comm_tcp.h"

enum { RANKS = 2, GREETING_MS = 1000 }; // as in comm_tcp.c

static struct wk_comm *comm[RANKS];
static int told[RANKS];

static enum wk_region_progress wait_for(int rank)
{
    eventfd_t count;
    enum wk_region_progress is;
    while ((is = wk_comm_region.poll(comm[rank])) == WK_REGION_BUSY)
        assert_int_equal(eventfd_read(told[rank], &count), 0);
    return is;
}

static void begin_all(void)
{
    struct wk_nccl_id id;
    assert_int_equal(wk_comm_region.unique_id(comm[0], &id), LH_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) wk_comm_region.init(comm[rank], &id, RANKS, rank);
}

static void leave_all(void)
{
    eventfd_t count;
    for (int rank = 0; rank < RANKS; rank++) wk_comm_region.abort(comm[rank]);
    for (int rank = 0; rank < RANKS; rank++)
        while (!wk_comm_region.aborted(comm[rank]))
            assert_int_equal(eventfd_read(told[rank], &count), 0);
}

TEST(a_greeting_that_cant_be_sent_in_time_is_told)
{
    struct lh_env *env;
    assert_int_equal(lh_env_real_create(&env), LH_OK);
    const struct wk_comm_tcp_conf conf = {.env = env, .address = ""};
    for (int rank = 0; rank < RANKS; rank++) {
        told[rank] = eventfd(0, EFD_CLOEXEC);
        assert_int_equal(wk_comm_tcp_create(&conf, &comm[rank]), LH_OK);
        wk_comm_bind(comm[rank], &(struct wk_comm_arrays){.sums = 0}, told[rank]);
    }
    fault_wait(GREETING_MS);
    begin_all(); // rank 1 greets; rank 0 waits for the greeting
    assert_int_equal(wait_for(1), WK_REGION_WRONG);
    assert_true(fault_waited());
    const char *why = wk_comm_region.why(comm[1]);
    if (!strstr(why, "was silent for 1000 ms")) fail_msg("%s", why);
    leave_all();
    begin_all();
    for (int rank = 0; rank < RANKS; rank++) assert_int_equal(wait_for(rank), WK_REGION_OK);
    leave_all();
    for (int rank = 0; rank < RANKS; rank++) {
        wk_comm_destroy(comm[rank]);
        close(told[rank]);
    }
    lh_env_real_destroy(env);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); // as the programs do
    return test_run(NULL, NULL);
}
