// Errors: one type, one table.
//
// A code names the failure; its class answers the caller's only question: try again, reject the
// peer, or stop. The function that decides the error writes its text once (lh_fail): the failure,
// its place and its remedy. The function that reports the error reads the text (lh_err_text). Each
// thread has its own text, like errno: that of its last failing call.
#ifndef LH_COMMON_ERR_H
#define LH_COMMON_ERR_H

// class: OK | RETRY (same call may succeed later) | REJECT (the peer or the input is at fault) |
//        STOP (our own state or machine is at fault: stop and let a person or a supervisor look)
#define LH_ERRORS(X)                                                                               \
    X(LH_OK, OK, "ok")                                                                             \
    X(LH_ERR_INVALID, REJECT, "invalid argument or input")                                         \
    X(LH_ERR_CONFIG, REJECT, "invalid configuration")                                              \
    X(LH_ERR_MALFORMED, REJECT, "malformed bytes")                                                 \
    X(LH_ERR_TOO_LARGE, REJECT, "larger than its limit")                                           \
    X(LH_ERR_VERSION, REJECT, "no common wire version")                                            \
    X(LH_ERR_DENIED, REJECT, "not allowed for this role")                                          \
    X(LH_ERR_UNAUTHENTICATED, REJECT, "identity not accepted")                                     \
    X(LH_ERR_UNSEAL, REJECT, "frame cannot be unsealed with the job key")                          \
    X(LH_ERR_KEY_MISSING, STOP, "no such key")                                                     \
    X(LH_ERR_MANIFEST, REJECT, "another model's manifest")                                         \
    X(LH_ERR_NON_FINITE, REJECT, "a value is not finite")                                          \
    X(LH_ERR_STALE, REJECT, "older than the staleness bound")                                      \
    X(LH_ERR_FENCED, REJECT, "a newer incarnation exists")                                         \
    X(LH_ERR_BEHIND, RETRY, "a step is missing before this one")                                   \
    X(LH_ERR_NEED_HELLO, RETRY, "no session with this process")                                    \
    X(LH_ERR_PROTOCOL, REJECT, "protocol violation")                                               \
    X(LH_ERR_NOT_OWNER, RETRY, "another server owns this shard")                                   \
    X(LH_ERR_BUSY, RETRY, "too busy now")                                                          \
    X(LH_ERR_UNAVAILABLE, RETRY, "peer not reachable")                                             \
    X(LH_ERR_REBUILDING, RETRY, "the shard is being rebuilt from its followers")                   \
    X(LH_ERR_DEADLINE, RETRY, "deadline passed")                                                   \
    X(LH_ERR_CANCELLED, RETRY, "cancelled")                                                        \
    X(LH_ERR_NOT_FOUND, REJECT, "not found")                                                       \
    X(LH_ERR_EXISTS, REJECT, "exists already")                                                     \
    X(LH_ERR_CONFLICT, RETRY, "changed meanwhile")                                                 \
    X(LH_ERR_NO_MEMORY, STOP, "out of memory")                                                     \
    X(LH_ERR_DISK_FULL, RETRY, "disk full")                                                        \
    X(LH_ERR_IO, STOP, "input or output failed")                                                   \
    X(LH_ERR_CORRUPT, STOP, "stored bytes are damaged")                                            \
    X(LH_ERR_KILLED, STOP, "process was killed (simulation only)")                                 \
    X(LH_ERR_UNSUPPORTED, REJECT, "not supported by this build")                                   \
    X(LH_ERR_INTERNAL, STOP, "internal error")                                                     \
    X(LH_ERR_SET_ASIDE, REJECT, "its pushes are set aside")                                        \
    X(LH_ERR_EXPELLED, REJECT, "it was expelled from this run")                                    \
    X(LH_ERR_GRANT, REJECT, "a claim that was not granted")                                        \
    X(LH_ERR_BOUND, REJECT, "it says more than it may")                                            \
    X(LH_ERR_BUDGET, REJECT, "a privacy budget forbids it")

#define LH_ERR_ENUM(code, class, text) code,
typedef enum lh_err { LH_ERRORS(LH_ERR_ENUM) LH_ERR_COUNT } lh_err;
#undef LH_ERR_ENUM

enum lh_err_class { LH_CLASS_OK, LH_CLASS_RETRY, LH_CLASS_REJECT, LH_CLASS_STOP };

// Every function that returns lh_err carries this in its declaration.
#define LH_MUST __attribute__((warn_unused_result))

enum { LH_ERR_TEXT_BYTES = 512 };

// Records the text for this thread and returns `code`. Control characters in it are replaced. An
// argument may be lh_err_text()'s, to prefix the error of a callee with its place: "FILE: ...".
lh_err lh_fail(lh_err code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
// The same, with ": <strerror(saved_errno)>" appended; ENOSPC and EDQUOT turn LH_ERR_IO into
// LH_ERR_DISK_FULL, with a remedy in the text.
lh_err lh_fail_errno(int saved_errno, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

const char *lh_err_name(lh_err code); // "LH_ERR_STALE"
const char *lh_err_text(lh_err code); // this thread's recorded text, or the table's

// An error with its text, to pass from the thread that failed to the one that reports it.
struct lh_err_said {
    lh_err code; // LH_OK: none
    char text[LH_ERR_TEXT_BYTES];
};
void lh_err_take(struct lh_err_said *out);        // moves this thread's error to *out
void lh_err_give(const struct lh_err_said *said); // sets this thread's error
enum lh_err_class lh_err_class(lh_err code);

// The two propagation macros. LH_TRY returns; LH_TRY_TO sets `err` and jumps to a clean-up label.
#define LH_TRY(expression)                                                                         \
    do {                                                                                           \
        lh_err lh_try_err_ = (expression);                                                         \
        if (lh_try_err_ != LH_OK) return lh_try_err_;                                              \
    } while (0)
#define LH_TRY_TO(label, err, expression)                                                          \
    do {                                                                                           \
        (err) = (expression);                                                                      \
        if ((err) != LH_OK) goto label;                                                            \
    } while (0)

#endif
