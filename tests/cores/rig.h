// Cores of the programs on the fake env, with workers played by hand: a test sends each of their
// messages, and decides when a node dies. There is one coordinator, one server with one shard or
// two, perhaps its standby, and workers 0 and 1.
#ifndef TESTS_CORES_RIG_H
#define TESTS_CORES_RIG_H

#include "common/net/rpc.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_member.h"
#include "common/net/wire_shard.h"
#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/sim/setup.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"
#include "tests/world/pb.h"
#include "tests/world/transport_mem.h"

enum { RIG_WORKERS = 2, RIG_SHARDS = 2 };

#define RIG_TEST(name, parameter) TEST_WITH(name, parameter, rig_set_up, rig_tear_down)

struct rig_node {
    struct lh_env *env;
    struct lh_transport *transport; // NULL: the node is down
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
    char fatal_text[512]; // text of the last fatal error
    // Hook of the servers that are started from here on; its argument is the rig.
    void (*folded)(void *arg, uint32_t shard, const struct lh_record *record);
    // Settings of the servers that are started from here on. With `replicated` a server waits 1 s
    // for its standby, which takes over after 1.5 s.
    bool below_stable, unsealed, rebuild_damaged, replicated;
    uint32_t voices;            // rebuild.voices of servers started from here on; 0: one
    struct lh_hash held_digest; // offer.c: digest of the state that a server lost
    bool stands_by;             // the server too starts as a standby
    // The next server to start loses its power at this file operation, counted from 1; 0: never.
    int64_t crash_at;
    uint64_t segment_bytes; // 0: 1 MiB
    uint32_t shard;         // the shard that rig_greet() and the like address
    uint32_t epochs;        // data epochs of coordinators started from here on; 0: one
    uint64_t order;         // seed of the units' order
    char named[300];        // buffer for `servers`, filled by rig_name_servers()
    const char *servers;    // coordinator.servers of coordinators started from here on; NULL: none
};

// A world with this seed, in which only the workers' nodes are up.
struct rig *rig_new(uint64_t seed);
void rig_free(struct rig *r);
void rig_enlarge(struct rig *r, uint64_t values); // enlarges the model; before a server starts
void rig_two_shards(struct rig *r); // divides the model in two; before a server starts
int rig_set_up(void **state);
int rig_tear_down(void **state);

void rig_start_coordinator(struct rig *r);
void rig_name_servers(struct rig *r);              // sets coordinator.servers to server and standby
LH_MUST lh_err rig_try_coordinator(struct rig *r); // the start may fail
// `alone`: without a coordinator. The server checkpoints every five versions.
LH_MUST lh_err rig_start_server(struct rig *r, bool alone);
void rig_serve(struct rig *r, int64_t ns);       // starts both; then this time passes
void rig_boot_server(struct rig *r);             // only the node: a test plays the server
LH_MUST lh_err rig_start_standby(struct rig *r); // named server1, with the same settings
// Starts only the node: a test plays the standby, over t_to_s and t_to_c.
void rig_boot_standby(struct rig *r);
// A standby with that directory and certificate reports for shard 0; returns whether it may serve.
bool rig_serves(struct rig *r, uint64_t identity, uint64_t server, bool lost);
// Starts coordinator, server and standby, in sync, and raises worker 0's incarnation six times.
void rig_begin_in_sync(struct rig *r);
void rig_settle(struct rig *r); // runs until all of the coordinator's changes are durable
void rig_kill_coordinator(struct rig *r);
void rig_kill_server(struct rig *r, bool power);
void rig_kill_standby(struct rig *r, bool power);
void rig_boot_worker(struct rig *r, uint32_t w); // after rig_kill_worker()
void rig_kill_worker(struct rig *r, uint32_t w, bool power);
// From here on to_s[w] links to the standby.
void rig_dial_standby(struct rig *r, uint32_t w);
// Settings for a core that a test starts by itself.
struct setup rig_common(struct rig *r, const struct rig_node *n);
void rig_run(struct rig *r, int64_t ns); // lets this time pass
// Opens a log on the disk of the standby's node, which is up; counts an event in it.
struct lh_log *rig_log_lines(struct rig *r);
unsigned rig_said(struct rig *r, const char *event);

// Asks and waits for the answer. *answer: free it with rig_free_message(); NULL after an error.
LH_MUST lh_err rig_ask(struct rig *r, struct lh_link *link, enum lh_rpc rpc,
                       const ProtobufCMessage *m, ProtobufCMessage **answer);
void rig_free_message(void *message);
// The same for a test that needs nothing of the answer.
LH_MUST lh_err rig_say(struct rig *r, struct lh_link *link, enum lh_rpc rpc,
                       const ProtobufCMessage *m);
// The lease request of worker w's first incarnation, which wants nothing yet.
Longhaul__V1__LeaseRequest rig_lease_request(struct rig *r, uint32_t w);

// A first join by a current program; *wire becomes part of the request.
void rig_join_request(struct rig *r, uint64_t attempt, Longhaul__V1__Wire *wire,
                      Longhaul__V1__JoinRequest *out);
// Worker w joins, replacing incarnation `over`. Only the numbers of the answer are valid, not its
// pointers.
Longhaul__V1__JoinReply rig_join(struct rig *r, uint32_t w, uint64_t attempt, uint32_t over);

// Greets the server as worker w with this incarnation's number. rig_hello() also waits for the
// answer, and fails the test if it opens no session.
void rig_greet(struct rig *r, uint32_t w, uint64_t number, uint64_t decided, uint64_t next);
void rig_hello(struct rig *r, uint32_t w, uint64_t number, uint64_t decided, uint64_t next);
// Greets as a new incarnation of worker w; returns the answer's status.
LH_MUST lh_err rig_fence(struct rig *r, uint32_t w, uint64_t number);
// Adds versions `from` to `to` of r->shard: each raised incarnation of worker 0 is a FENCE record.
void rig_log(struct rig *r, uint64_t from, uint64_t to);
// Worker 0's last incarnation that this shard's log fenced in; 0: none.
uint64_t rig_fenced(const struct rig *r, const struct ps_server *s, uint32_t shard);

// A call by hand. A test that needs more fields begins its own struct with this one.
struct rig_call {
    struct lh_call *call; // valid until it is over
    bool over;
    lh_err status;
    char text[256];
};

// Entries for lh_call_ops of peers by hand that need nothing else.
void rig_on_message(void *self, struct lh_call *call, const struct lh_msg *msg); // reads on
void rig_on_nothing(void *self, struct lh_call *call);
void rig_on_close(void *self, struct lh_call *call, lh_err status, const char *text); // a rig_call
void rig_on_gone(void *self, struct lh_call *call, lh_err status, const char *text);  // unrecorded
extern const struct lh_call_ops rig_call_ops; // a client's entries

// Worker w opens a call to the server, without reading yet. `ops`: rig_call_ops, or others.
void rig_call_open(struct rig *r, uint32_t w, enum lh_rpc rpc, const struct lh_call_ops *ops,
                   struct rig_call *c);
void rig_call_wait(struct rig *r, const struct rig_call *c); // runs until the call is over

// The life of worker 1's core.
struct rig_life {
    struct wk_worker *worker;
    struct wk_trainer *trainer;
};

// With its own trainer and short times; the test fails if the worker ends by itself.
struct wk_conf rig_life_conf(struct rig *r, struct rig_life *l, uint64_t step_ms);
void rig_life_start(struct rig_life *l, const struct wk_conf *conf);
void rig_life_end(struct rig *r, struct rig_life *l,
                  bool power); // before another life: rig_boot_worker()

#endif
