// A limit on everything, each with its reason. Relations between limits are checked below.
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
        1 << 22, // units of a run, of all its data epochs: 512 KiB of credit bits a shard
    // Steps that a region may charge to its privacy budget: accountants take any number below it.
    LH_CHARGED_MAX = 1 << 30,
    LH_CLAIMS_MAX = 64,  // units claimed by one push; a round finishes a handful
    LH_WINDOW_MAX = 128, // units a batch is mixed from: their trained parts are not credited yet
    LH_READ_AHEAD_MAX = 128, // units read ahead of the window: their tokens are in memory
    // Units leased to one worker and not trained. Their names cross both ways with each lease
    // request, once a second: 16 KiB each way. They take 128 KiB in the worker. They are 300 s of
    // training where a unit lasts 73 ms; where units are shorter, fewer seconds are leased ahead.
    LH_LEASES_MAX = 4096,
    // Units asked back with one answer, an eighth of LH_LEASES_MAX; the rest follow a second later.
    LH_RECALLS_MAX = 512,
    LH_AWAY_MAX = 64,               // home regions that a worker may say are away
    LH_REFUSED_MAX = 64,            // single units that do not reach a worker, and that it names
    LH_GIVERS_MAX = 64,             // servers that give units, and are told to workers
    LH_TRAVEL_BYTES_MAX = 32 << 20, // a unit that travels: both ends hold it in memory twice
    // Bulk bytes of one message of such a unit: its call is seen to move on a link of 70 kbit/s,
    // too, where it has as long as a short call (10 s).
    LH_TRAVEL_PART_BYTES = 64 << 10,
    LH_PATHS_MAX = 64, // servers to which a worker tells what its path is like: 8 KiB a request
    LH_PART_BYTES = 1 << 20,  // bulk bytes of one message: the fastest size (bench notes: 1 MiB)
    LH_HEAD_BYTES = 64 << 10, // protobuf head of a bulk message
    LH_SMALL_BYTES = 1 << 20, // a message without bulk: credit bits and plans fit
    LH_MESSAGE_BYTES = LH_PART_BYTES + LH_HEAD_BYTES + 64,
    LH_ADDRESS_BYTES = 128,
    LH_PATH_BYTES = 512,

    LH_FRAME_BYTES_MAX = 1 << 30, // one push of one shard: dense fp32 of 250 M parameters
    LH_RECORD_BYTES_MAX = LH_FRAME_BYTES_MAX + (1 << 16),
    LH_GROUP_BYTES = 4 << 20, // a group commit takes no further record beyond this
    // Bytes of frames and payloads under way in a server: two dense frames of 64 MiB and their
    // payloads. A server stays below 4 bytes a parameter + 256 MiB by it.
    LH_PUSH_BYTES = 200 << 20,
    // A larger frame is sent when the server has memory for it: one trip, and the server's
    // transport holds nothing of the frames that wait.
    LH_ASK_BYTES = 8 << 20,
    // Frames above this part of LH_PUSH_BYTES arrive one after another. Each arrives alone until
    // nearly all of it is there, or for LH_TURN_MS to its first byte and LH_TURN_MS after that.
    LH_TURN_SHARE = 8,
    LH_TURN_MS = 500,
    // Bytes per second. A frame that arrives more slowly gets no memory kept for it: new pages take
    // less than a tenth of its time.
    LH_KEEP_RATE = 150000000,
    LH_AHEAD_BYTES = 1 << 20,   // larger frames go to the log while they are unsealed
    LH_SHARED_BYTES = 16 << 20, // frames that followers are sent from memory, not from the log
    LH_DECIDE_QUEUE_MAX = 256,  // pushes received and not decided, a server; more wait unread
    LH_PUSH_SILENT_MS = 120000, // a full part of a push takes less, on a link of 70 kbit/s too
    LH_SNAPSHOT_RANGES = 2,     // ranges of a snapshot at most, each on a connection of its own
    LH_SNAPSHOT_RANGES_BYTES =
        16 << 20, // larger ones come in two ranges: a handshake costs as much as 5 MB
    // A whole snapshot has LH_JOIN_SILENT_MS, and its bytes at this rate: 2 Mbit/s. Or at a part of
    // the rate that this server's snapshots had lately, where that is more.
    LH_JOIN_BYTES_PER_S = 256 << 10,
    LH_JOIN_RATE_PART = 16,
    LH_JOIN_TURN_MS = 10000,    // then a slow reader's place is another's that waits
    LH_JOIN_SILENT_MS = 120000, // a part of a snapshot takes less, on a link of 70 kbit/s too
    LH_READ_SILENT_MS = 600000, // a follower may train for minutes before it reads on (bsp)
    // Incoming pushes of one worker, and its follow streams: one of each, and those of connections
    // whose end is not known yet.
    LH_STREAMS_A_SHARD = 4,
    // Open follow streams of one shard: each worker's, standbys', and some whose end is not known.
    LH_FOLLOWERS_MAX = 1152,
    // Incarnations that a worker may raise on a shard, each a record for all followers:
    // LH_FENCES_MAX at once, and one more every LH_FENCE_MS. A life without its directory takes
    // one, a lost history another.
    LH_FENCES_MAX = 256,
    LH_FENCE_MS = 1000,
    LH_NORMS = 7,         // norms of a worker's last pushes that its median looks at
    LH_OUTLIERS_MAX = 10, // pushes clipped in a row, after which a worker is set aside
    // Local steps that a push may count for in the norm gate: so many times those of others, and so
    // many in all.
    LH_NORM_STEPS = 8,
    LH_NORM_STEPS_MAX = 1 << 16,
    LH_EXPELLED_MAX = 256, // identities that are expelled from a run at a time
    LH_RETIRED_MAX = 256,  // names that are retired at a time, until every shard's log has them
    LH_LET_BACK_MAX = 256, // workers that operators let back, a run
};

// Bounds of waits. A longer path adds eight of its retransmission timeouts (common/net/trip.h), up
// to the _MAX_ of each: what a peer reports of its path stretches no wait without end.
enum {
    LH_CALL_MS = 10000,            // a call with one answer: a disk that stalls for seconds answers
    LH_CALL_MAX_MS = 120000,       // TCP itself gives a silent path up after about two minutes
    LH_SILENT_MAX_MS = 120000,     // a worker's silence: as long as a call may take
    LH_TAKE_OVER_MAX_MS = 30000,   // an owner's or a standby's silence: writers wait meanwhile
    LH_REPLAY_MS = 2000,           // a start folds the log's tail in about this time
    LH_SUPPLIER_MS = 30000,        // coordinator.scale_command: it asks another system for machines
    LH_SUPPLIER_EVERY_MS = 300000, // the same wish again: machines take minutes to come
    LH_HOOK_MS = 10000,            // coordinator.hook_command: it hands a change on
};

// The norm gate's reference grows by so much of itself at most while each live worker pushes once.
// A warm-up and a residual that fills double a norm in a few rounds, not in one.
#define LH_NORM_GROWTH 0.5

// Tokens that one push may say it stands for: the schedules' clock and the weighting by tokens add
// them up. A worker that trains a million a second would have no push decided for twelve days; and
// 2^24 such pushes do not wrap the sum.
#define LH_PUSH_TOKENS_MAX (UINT64_C(1) << 40)

// Tokens of a step, for the bounds of a push, before workers have said how many theirs train. What
// a push can't say yet, a later one says.
enum { LH_STEP_TOKENS = 16 };

// Most bytes on the wire of what a lease request and its answer list: the number of a unit, a
// point, an address of a shard.
enum {
    LH_UNIT_WIRE_BYTES = 4,
    LH_GRANT_WIRE_BYTES = 24,
    LH_TAG_WIRE_BYTES = 8, // an allowance's
    LH_POINT_WIRE_BYTES = 64,
    LH_ADDRESS_WIRE_BYTES = LH_ADDRESS_BYTES + 24,
    LH_PATH_WIRE_BYTES = 96,
    LH_AWAY_WIRE_BYTES = 128, // the name of a region, and its figures
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
// A report says so much of a shard beside its head and its credits, and of so many workers of all
// its shards what was admitted. A longer list is told in turns.
enum { LH_REPORT_WIRE_BYTES = 56, LH_REPORT_ROWS_MAX = 512, LH_ROW_WIRE_BYTES = 34 };
LH_STATIC_ASSERT(LH_UNITS_MAX / 8 + LH_SHARDS_MAX * (LH_POINT_WIRE_BYTES + LH_REPORT_WIRE_BYTES) +
                         LH_REPORT_ROWS_MAX * LH_ROW_WIRE_BYTES <=
                     LH_SMALL_BYTES,
                 "a report of all shards fits a message: their packed credits are a bit a unit");
LH_STATIC_ASSERT(LH_FOLLOWERS_MAX > LH_WORKERS_MAX, "every worker of a run can follow a shard");
LH_STATIC_ASSERT(LH_GROUP_BYTES >= LH_PART_BYTES, "a group holds at least one full message");

#endif
