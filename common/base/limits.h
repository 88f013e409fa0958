// A limit on everything, each with its reason. Relations between limits are asserted below.
#ifndef LH_COMMON_LIMITS_H
#define LH_COMMON_LIMITS_H

#include <stdint.h>

#include "common/base/check.h"

enum {
    LH_WIRE_VERSION_MIN = 2, // wire versions that this build speaks
    LH_WIRE_VERSION_MAX = 2,

    LH_WORKERS_MAX = 1024, // rows of a shard's ledger; two-level relays serve more regions
    LH_SHARDS_MAX = 4096,  // 70 B parameters at 16 M a shard
    LH_UNITS_MAX =
        1 << 22, // units of a run over all its data epochs: 512 KiB of credit bits a shard
    // Steps that a region may charge to its privacy budget; the accountants handle any number up to
    // it.
    LH_CHARGED_MAX = 1 << 30,
    LH_CLAIMS_MAX = 64,      // units claimed by one push; a round finishes few
    LH_WINDOW_MAX = 128,     // units that batches mix: their trained parts are not credited yet
    LH_READ_AHEAD_MAX = 128, // units read ahead of the window: their tokens are in memory
    // Units leased to one worker and not trained. Each lease request (one a second) and its answer
    // carry their numbers: 16 KiB each way. They take 128 KiB in the worker. At 73 ms a unit they
    // last 300 s; shorter units last less.
    LH_LEASES_MAX = 4096,
    // Units recalled with one answer, an eighth of LH_LEASES_MAX; the rest follow a second later.
    LH_RECALLS_MAX = 512,
    LH_AWAY_MAX = 64,               // home regions that a worker may report as away
    LH_REFUSED_MAX = 64,            // units that a worker may report as not reaching it
    LH_GIVERS_MAX = 64,             // servers that workers may fetch units from
    LH_TRAVEL_BYTES_MAX = 32 << 20, // a unit sent to a worker: both ends hold it twice
    // Bulk bytes of one message of such a unit: on a link of 70 kbit/s, too, a message arrives
    // within a short call's time (10 s), which shows progress.
    LH_TRAVEL_PART_BYTES = 64 << 10,
    LH_PATHS_MAX = 64,        // servers whose path a worker reports: 8 KiB a request
    LH_PART_BYTES = 1 << 20,  // bulk bytes of one message: the fastest size (bench notes: 1 MiB)
    LH_HEAD_BYTES = 64 << 10, // protobuf head of a bulk message
    LH_SMALL_BYTES = 1 << 20, // a message without bulk: credit bits and plans fit
    LH_MESSAGE_BYTES = LH_PART_BYTES + LH_HEAD_BYTES + 64,
    LH_ADDRESS_BYTES = 128,
    LH_PAUSE_WHY_BYTES = 256, // why a run is paused, with its zero: a sentence for people
    LH_PATH_BYTES = 512,

    LH_FRAME_BYTES_MAX = 1 << 30, // one push of one shard: dense fp32 of 250 M parameters
    LH_RECORD_BYTES_MAX = LH_FRAME_BYTES_MAX + (1 << 16),
    LH_GROUP_BYTES = 4 << 20, // a group commit of this size takes no further record
    // Bytes of frames and payloads in flight in a server: two dense frames of 64 MiB and their
    // payloads. It keeps a server below 4 bytes a parameter + 256 MiB.
    LH_PUSH_BYTES = 200 << 20,
    // Before it sends a larger frame, a worker asks the server for memory: one round trip, and the
    // server's transport holds no waiting frames.
    LH_ASK_BYTES = 8 << 20,
    // Frames above 1/LH_TURN_SHARE of LH_PUSH_BYTES arrive one after another. Each arrives alone
    // until nearly all of it is there, or for at most LH_TURN_MS before its first byte and
    // LH_TURN_MS after it.
    LH_TURN_SHARE = 8,
    LH_TURN_MS = 500,
    // Bytes per second. A frame that arrives more slowly gets no cached memory: new pages take less
    // than a tenth of its time.
    LH_KEEP_RATE = 150000000,
    LH_AHEAD_BYTES = 1 << 20,   // larger frames are written to the log while they are unsealed
    LH_SHARED_BYTES = 16 << 20, // recent frames that followers get from memory, not from the log
    LH_DECIDE_QUEUE_MAX = 256,  // pushes received and not decided, a server; more wait unread
    // If other pushes wait for memory, one that has arrived for LH_PUSH_SLOW_MS at less than this
    // rate (2 Mbit/s) ends.
    LH_PUSH_SLOW_MS = 10000,
    LH_PUSH_SLOW_BYTES_PER_S = 256 << 10,
    LH_PUSH_SILENT_MS = 120000, // a full part of a push takes less, even at 70 kbit/s
    LH_SNAPSHOT_RANGES = 2,     // most ranges of a snapshot, each on its own connection
    LH_SNAPSHOT_RANGES_BYTES =
        16 << 20, // larger snapshots come in two ranges: a handshake costs as much as 5 MB
    // Time for a whole snapshot: LH_JOIN_SILENT_MS plus its bytes at this rate (2 Mbit/s), or at
    // 1/LH_JOIN_RATE_PART of this server's recent snapshot rate if that is more.
    LH_JOIN_BYTES_PER_S = 256 << 10,
    LH_JOIN_RATE_PART = 16,
    LH_JOIN_TURN_MS = 10000,    // afterwards a slow reader yields its slot to a waiting one
    LH_JOIN_SILENT_MS = 120000, // a part of a snapshot takes less, even at 70 kbit/s
    LH_READ_SILENT_MS = 600000, // a follower may train for minutes before its next read (bsp)
    // Incoming pushes of one worker, and its follow streams: one of each, and those of dead
    // connections not yet noticed.
    LH_STREAMS_A_SHARD = 4,
    // Open follow streams of one shard: workers', standbys', and some of dead connections not yet
    // noticed.
    LH_FOLLOWERS_MAX = 1152,
    // Incarnations that a worker may raise on a shard, each a record for all followers:
    // LH_FENCES_MAX at once, and one more every LH_FENCE_MS. A start without the old directory
    // takes one, a lost history another.
    LH_FENCES_MAX = 256,
    LH_FENCE_MS = 1000,
    LH_NORMS = 7,         // a worker's median is over this many of its last norms
    LH_OUTLIERS_MAX = 10, // consecutive clipped pushes after which a worker is set aside
    // Local steps that a push counts for in the norm gate: at most LH_NORM_STEPS times others' and
    // LH_NORM_STEPS_MAX in all.
    LH_NORM_STEPS = 8,
    LH_NORM_STEPS_MAX = 1 << 16,
    LH_EXPELLED_MAX = 256, // identities expelled from a run at a time
    LH_RETIRED_MAX = 256,  // names being retired at a time, until every shard's log has them
    LH_LET_BACK_MAX = 256, // workers that operators let back in a run
};

// Bounds of waits. A longer path adds eight of its retransmission timeouts (common/net/trip.h), up
// to each _MAX_, so a peer's report of its path cannot extend a wait without bound.
enum {
    LH_CALL_MS = 10000,          // a call with one answer: covers a disk that stalls for seconds
    LH_CALL_MAX_MS = 120000,     // TCP itself gives up a silent path after about two minutes
    LH_SILENT_MAX_MS = 120000,   // a worker's silence: as long as a call may take
    LH_TAKE_OVER_MAX_MS = 30000, // an owner's or a standby's silence; writers wait that long
    LH_REPLAY_MS = 2000,         // a start replays the log's tail in about this time
    LH_SUPPLIER_MS = 30000,      // coordinator.scale_command: requests machines from another system
    LH_SUPPLIER_EVERY_MS = 300000, // interval of the same request: machines take minutes to start
    LH_HOOK_MS = 10000,            // coordinator.hook_command: reports a change
};

// While each live worker pushes once, the norm gate's reference grows by at most this fraction. A
// warm-up or a filling residual doubles a norm in a few rounds, not in one.
#define LH_NORM_GROWTH 0.5

// Tokens that one push may count for; the schedules' clock and the weighting by tokens add them up.
// A worker at a million tokens a second reaches it after twelve days without a decided push; 2^24
// such pushes do not overflow the sum.
#define LH_PUSH_TOKENS_MAX (UINT64_C(1) << 40)

// Tokens of a step, for the bounds of a push, before workers have reported theirs. A later push
// counts the tokens that one push may not.
enum { LH_STEP_TOKENS = 16 };

// Most bytes on the wire of each entry of a lease request and its answer: a unit's number, a point,
// a shard's address.
enum {
    LH_UNIT_WIRE_BYTES = 4,
    LH_GRANT_WIRE_BYTES = 24,
    LH_TAG_WIRE_BYTES = 8, // an allowance's
    LH_POINT_WIRE_BYTES = 64,
    LH_ADDRESS_WIRE_BYTES = LH_ADDRESS_BYTES + 24,
    LH_PATH_WIRE_BYTES = 96,
    LH_AWAY_WIRE_BYTES = 128, // a region's name and its figures
    LH_GIVER_WIRE_BYTES = LH_ADDRESS_BYTES + 80
};
LH_STATIC_ASSERT(LH_UNITS_MAX <= 1 << 28, "a unit's number is a varint of four bytes");
LH_STATIC_ASSERT((LH_LEASES_MAX + LH_RECALLS_MAX) * LH_UNIT_WIRE_BYTES +
                         LH_LEASES_MAX * LH_GRANT_WIRE_BYTES + LH_SHARDS_MAX * LH_TAG_WIRE_BYTES +
                         LH_SHARDS_MAX * (LH_POINT_WIRE_BYTES + LH_ADDRESS_WIRE_BYTES) +
                         LH_GIVERS_MAX * LH_GIVER_WIRE_BYTES <=
                     LH_SMALL_BYTES,
                 "the answer to a lease request fits a message");
LH_STATIC_ASSERT((2 * LH_LEASES_MAX + LH_RECALLS_MAX) * LH_UNIT_WIRE_BYTES +
                         LH_SHARDS_MAX * 2 * LH_POINT_WIRE_BYTES +
                         LH_PATHS_MAX * LH_PATH_WIRE_BYTES + LH_AWAY_MAX * LH_AWAY_WIRE_BYTES +
                         LH_REFUSED_MAX * LH_UNIT_WIRE_BYTES <=
                     LH_SMALL_BYTES,
                 "a lease request fits a message, and leaves bytes for claims");
LH_STATIC_ASSERT(LH_WINDOW_MAX + LH_READ_AHEAD_MAX <= LH_LEASES_MAX,
                 "what is in work and read ahead is leased");
// A report has at most this much of a shard besides its head and credits, and rows of admitted
// pushes for at most LH_REPORT_ROWS_MAX workers over all its shards. A longer list goes in turns
// over several reports.
enum { LH_REPORT_WIRE_BYTES = 56, LH_REPORT_ROWS_MAX = 512, LH_ROW_WIRE_BYTES = 34 };
LH_STATIC_ASSERT(LH_UNITS_MAX / 8 + LH_SHARDS_MAX * (LH_POINT_WIRE_BYTES + LH_REPORT_WIRE_BYTES) +
                         LH_REPORT_ROWS_MAX * LH_ROW_WIRE_BYTES <=
                     LH_SMALL_BYTES,
                 "a report of all shards fits a message: their packed credits are a bit a unit");
LH_STATIC_ASSERT(LH_FOLLOWERS_MAX > LH_WORKERS_MAX, "every worker of a run can follow a shard");
LH_STATIC_ASSERT(LH_GROUP_BYTES >= LH_PART_BYTES, "a group holds at least one full message");

#endif
