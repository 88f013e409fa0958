// Cores of the programs on the fake env, and a worker made by hand: a test says every word that is
// sent, and when a node dies. One coordinator, one server with shard 0 of one, or with both of two,
// perhaps a standby of it, workers 0 and 1.
#ifndef TESTS_CORES_RIG_H
#define TESTS_CORES_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/env/env_fake.h"
#include "common/net/mem/transport_mem.h"
#include "common/net/rpc.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_member.h"
#include "common/net/wire_shard.h"
#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/sim/setup.h"

enum { RIG_WORKERS = 2, RIG_SHARDS = 2 };

#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)

struct rig_node {
    struct lh_env *env;
    struct lh_transport *transport; // NULL: it is down
    struct lh_peer self;
    char dir[32], address[32];
};

struct rig {
    struct lh_fake_world *world;
    struct lh_fabric *fabric;
    struct lh_manifest manifest;
    struct lh_units units;
    struct lh_keyring *keys;
    float *initial;
    struct rig_node c, s, t, w[RIG_WORKERS];
    struct ps_coordinator *coordinator;
    struct ps_server *server, *standby; // on s and t
    struct lh_link *to_c[RIG_WORKERS], *to_s[RIG_WORKERS], *t_to_s, *t_to_c;
    uint32_t fatal_count;
    char fatal_text[512]; // what the last one said
    // The servers' hook, from their start on; its argument is r.
    void (*folded)(void *arg, uint32_t shard, const struct lh_record *record);
    // settings of the servers that are started from here on; replicated: a standby is waited for
    // (1 s), and takes over (after 1.5 s)
    bool below_stable, unsealed, rebuild_damaged, replicated;
    uint32_t voices;            // rebuild.voices of a server that starts; 0: one
    struct lh_hash held_digest; // offer.c: of the state that a server lost
    bool stands_by;             // the server too, whose shards were taken over
    // The next server to start loses its power at this file operation, from 1 on; 0: it does not.
    int64_t crash_at;
    uint64_t segment_bytes; // 0: a MiB
    uint32_t shard;         // the shard that greetings are for from here on
    uint32_t epochs;        // data epochs of the coordinators from here on; 0: one
    uint64_t order;         // the seed of their order
    char named[300];        // what `servers` points to, where rig_name_servers() set it
    const char *servers;    // coordinator.servers of the coordinators from here on; NULL: none
};

// For cmocka: a world of this seed in which no node runs yet but the workers.
struct rig *rig_new(uint64_t seed);
void rig_free(struct rig *r);
void rig_enlarge(struct rig *r, uint64_t values); // the model, before a server starts
void rig_two_shards(struct rig *r); // gives the model, and each server, two; to be called as early
int rig_set_up(void **state);
int rig_tear_down(void **state);

void rig_start_coordinator(struct rig *r);
void rig_name_servers(struct rig *r);              // the settings name the server and the standby
LH_MUST lh_err rig_try_coordinator(struct rig *r); // the same, where the start may be refused
// `alone`: without a coordinator. Checkpoints every five versions.
LH_MUST lh_err rig_start_server(struct rig *r, bool alone);
void rig_boot_server(struct rig *r);             // the node alone: a test speaks for it
LH_MUST lh_err rig_start_standby(struct rig *r); // server1, with the same settings
// The node alone: a test speaks for it, over t_to_s and t_to_c.
void rig_boot_standby(struct rig *r);
// A standby of that directory and certificate reports for shard 0: is it told to serve?
bool rig_serves(struct rig *r, uint64_t identity, uint64_t server, bool lost);
// Coordinator, server and standby, in sync; worker 0 has raised its incarnation six times.
void rig_begin_in_sync(struct rig *r);
void rig_settle(struct rig *r); // until all that the coordinator changed is durable
void rig_kill_coordinator(struct rig *r);
void rig_kill_server(struct rig *r, bool power);
void rig_kill_standby(struct rig *r, bool power);
void rig_damage_tail(const struct rig_node *n);  // a byte of the last entry of its log; it is down
void rig_boot_worker(struct rig *r, uint32_t w); // again, after
void rig_kill_worker(struct rig *r, uint32_t w, bool power);
// Makes to_s[w] a link to the standby from here on.
void rig_dial_standby(struct rig *r, uint32_t w);
// The settings for a core that a test starts by itself.
struct setup rig_common(struct rig *r, const struct rig_node *n);
void rig_run(struct rig *r, int64_t ns); // lets so much time pass
// A log on the disk of the standby's node, which is up; and how often it names this event.
struct lh_log *rig_log_lines(struct rig *r);
unsigned rig_said(struct rig *r, const char *event);

// Asks and waits for the answer. *answer: free it with rig_free_message(); NULL after an error.
LH_MUST lh_err rig_ask(struct rig *r, struct lh_link *link, enum lh_rpc rpc,
                       const ProtobufCMessage *m, const ProtobufCMessageDescriptor *type,
                       ProtobufCMessage **answer);
void rig_free_message(void *message);

// A fresh join as a worker of today asks it; *wire is part of it.
void rig_join_request(struct rig *r, uint64_t attempt, Longhaul__V1__Wire *wire,
                      Longhaul__V1__JoinRequest *out);
// A fresh join of worker w, over the number `over`. The numbers of
// the answer count, not what it points to.
Longhaul__V1__JoinReply rig_join(struct rig *r, uint32_t w, uint64_t attempt, uint32_t over);

// Greets the server as worker w with this incarnation's number, and does not wait for the answer;
// rig_hello() does, and fails the test where there is no session.
void rig_greet(struct rig *r, uint32_t w, uint64_t number, uint64_t decided, uint64_t next);
void rig_hello(struct rig *r, uint32_t w, uint64_t number, uint64_t decided, uint64_t next);
// The answer to a new incarnation of worker w.
LH_MUST lh_err rig_fence(struct rig *r, uint32_t w, uint64_t number);
// The shard's versions `from` to `to`: every raised incarnation of worker 0 is a FENCE record.
void rig_log(struct rig *r, uint64_t from, uint64_t to);
// The last incarnation of worker 0 that the server's log of a shard has fenced in; 0: none.
uint64_t rig_fenced(const struct rig *r, const struct ps_server *s, uint32_t shard);

// How a call by hand ended. A test's own struct begins with it where it has to know more.
struct rig_call {
    struct lh_call *call; // until it is over
    bool over;
    lh_err status;
    char text[256];
};

// For the lh_call_ops of a peer by hand, where it has nothing else to do.
void rig_on_message(void *self, struct lh_call *call, const struct lh_msg *msg); // reads on
void rig_on_nothing(void *self, struct lh_call *call);
void rig_on_close(void *self, struct lh_call *call, lh_err status, const char *text); // a rig_call
void rig_on_gone(void *self, struct lh_call *call, lh_err status, const char *text);  // unrecorded
extern const struct lh_call_ops rig_call_ops;                                         // a client's

// Worker w calls the server, and reads nothing yet. Its lh_call_ops: above, or with others of them.
void rig_call_open(struct rig *r, uint32_t w, enum lh_rpc rpc, const struct lh_call_ops *ops,
                   struct rig_call *c);
void rig_call_wait(struct rig *r, const struct rig_call *c); // lets time pass until it is over

// Life of a worker's core, as worker 1.
struct rig_life {
    struct wk_worker *worker;
    struct wk_trainer *trainer;
};

// With a trainer of its own and short times; the test fails when it ends by itself.
struct wk_conf rig_life_conf(struct rig *r, struct rig_life *l, uint64_t step_ms);
void rig_life_start(struct rig_life *l, const struct wk_conf *conf);
void rig_life_end(struct rig *r, struct rig_life *l,
                  bool power); // rig_boot_worker() before another

#endif
