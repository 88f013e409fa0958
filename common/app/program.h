// The process frame that longhaul-server and longhaul-worker share: a program of one settings
// table.
//
// lh_program_main() runs the process from start to end. It reads command line and settings and
// opens log, keys, manifest, certificates and transport. The application then starts its core on
// the loop, and status.json is rewritten about once a second. lh_program_end() or a signal ends it
// in order. SIGTERM and SIGINT end it with 0 (after what is due, LH_LEAVE_S at most; a second
// signal ends it at once), errors with their exit code (exit.h). It notifies the service manager
// when it is ready (as for /readyz), while its loop is alive, and when it ends (notify.h).
//
// DIR/status.json is the application's object plus "pid", "time_s" (since 1970), "up_s", "version",
// "disk_free_bytes", "certificate_expires_s", "http" (address of its HTTP server, if it has one),
// "wire_up_bytes", "wire_down_bytes" (of this process's sockets), "peak_bytes" (of memory), "cpu_s"
// "loop_longest_ms" (the longest time that one function kept the loop since the last status),
// "last_exit" (how the life before this one ended) and, in the last status of a life, "exit".
// The file is replaced as a whole and not synced: only a running process's status matters.
#ifndef LH_COMMON_PROGRAM_H
#define LH_COMMON_PROGRAM_H

#include "common/app/node.h"
#include "common/env/log.h"
#include "common/format/frame.h"
#include "common/format/manifest.h"
#include "common/net/transport.h"

struct lh_http;
struct lh_tensorboard;
struct lh_program;

enum { LH_LEAVE_S = 5 }; // `longhaul up` kills 8 s after the signal, Kubernetes 30 s

struct lh_app {
    const struct lh_config_table *table; // its settings begin with a struct lh_node
    enum lh_role (*role)(const void *settings);
    unsigned (*part)(const void *settings); // number among processes of one name; NULL: only one
    // HTML of the HTTP server's page; the function, or its result, may be NULL: no page.
    const char *(*page)(const void *settings);
    bool lock; // lh_program_main() locks DIR/lock; false: the core locks its directory itself
    // All on the loop's thread. `self` is lh_program_main()'s argument.
    lh_err (*start)(void *self, struct lh_program *p);
    lh_err (*status)(void *self, struct lh_buf *out); // appends one JSON object
    void (*tick)(void *self);                         // called with every status; may be NULL
    // Whether the run has ended here: then a status is written at once. May be NULL.
    bool (*over)(void *self);
    // After a signal: what is due before the end. Called until it is true, LH_LEAVE_S at most;
    // `asked`: not the first time. NULL: nothing is due.
    bool (*leave)(void *self, bool asked);
    // After a signal: writes the last durable state, after close(), when the lanes are idle. May be
    // NULL.
    lh_err (*settle)(void *self);
    void (*close)(void *self); // stops sending and accepting calls; keeps its memory
    void (*stop)(void *self);  // frees it; nothing calls it afterwards
};

struct lh_program {
    const struct lh_app *app;
    void *self;
    struct lh_config *config;
    const void *settings;
    const struct lh_node *node; // the settings' first member
    struct lh_env *env;
    struct lh_log *log;
    struct lh_peer peer; // this process as its peers see it
    uint8_t job[LH_JOB_BYTES];
    struct lh_keyring *keys; // NULL: the settings name none
    struct lh_manifest manifest;
    struct lh_transport *transport;
    uint64_t leader;      // the highest number of a coordinator that was heard; 0: none
    bool leader_unsaved;  // DIR/leader has a lower one, for the disk was full
    struct lh_http *http; // NULL: http.listen is empty
    // NULL: log.tensorboard is empty. Owned by the status lane.
    struct lh_tensorboard *tensorboard;
    lh_err board_result;
    bool board_fails; // the last write of metrics there failed
    struct {          // the loop's, except the values that the status lane found last
        uint64_t disk_free, next_disk_free;
        int64_t certificate_ends_s, next_ends_s; // seconds since 1970; 0: not read yet
        int64_t looked_s;                        // time of the last look at the certificate
    } limits;
    struct lh_file *lock;
    int64_t started_ns;
    uint64_t timer, over_timer, leave_timer;
    int64_t leave_by; // 0: no signal came
    int lanes_busy;
    bool ended, asked;          // asked: a signal asked for the end
    char last_exit[32];         // how the life before this one ended (status.h)
    bool watchdog, told_ready;  // the manager wants WATCHDOG=1; it was sent READY=1 (notify.h)
    struct lh_buf status, last; // texts of status.json: being written; at the loop's end
    bool status_writing;        // a write is on its lane
    atomic_bool status_shown;   // the status being written is published over HTTP
    lh_err status_result;       // result of the last write of a status, and its error text
    char status_text[400];
    bool status_fails; // the last write of status.json failed
    lh_err result;
};

int lh_program_main(const struct lh_app *app, void *self, int argc, char **argv);

// Ends the program soon, with this result; the first call counts. On the loop only.
void lh_program_end(struct lh_program *p, lh_err result);
// The same, as a core's `fatal` hook; arg is the program. The core has logged the text.
void lh_program_fatal(void *arg, lh_err err, const char *text);

// Files that settings name. A missing one is LH_ERR_NOT_FOUND with the setting's key.
LH_MUST lh_err lh_program_load(struct lh_program *p, const char *key, const char *path, size_t max,
                               struct lh_buf *out);
// Prints "listening HOST:PORT" on standard output, for a starter that asked for port 0.
void lh_program_listening(const char *address);

#endif
