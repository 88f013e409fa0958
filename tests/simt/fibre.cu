// The emulator's threads: one block's fibres, its barriers and warps. See simt.h.
//
// Invariants: 1. exactly one fibre runs, and only fibres of the block in hand exist; 2. a fibre
// gives up control only in simt_barrier(), simt_warp(), simt_yield() and at its end.
#include "tests/simt/fibre.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef SIMT_ASAN // kernels are compiled with it (simt.cmake)
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 128 << 10, THREADS_MAX = 1024, LANES = 32, SHARED_MAX = 16 };

// ---- switching: callee-saved registers on x86-64, ucontext elsewhere
#if defined(__x86_64__)
extern "C" void simt_switch(void **save, void *to);
__asm__(".text\n.globl simt_switch\n.type simt_switch,@function\nsimt_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\n"
        "popq %rcx\njmpq *%rcx\n" // a ret would be mispredicted, since no call matches it
        ".size simt_switch,.-simt_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");
typedef void *context;
#else
#include <ucontext.h>
typedef ucontext_t context;
#endif

enum state { READY, AT_BARRIER, AT_WARP, DONE };

struct fibre {
    context where;
    char *stack; // from its first step to its end
    enum state state;
    unsigned index; // place in the block
    int vote;       // its vote at a barrier
    enum simt_kind kind;
    unsigned mask;
    uint64_t value, result;
    int argument, line;
    const char *file;
    void *fake; // ASan's
};

// Lanes of a warp that wait at one operation.
struct meeting {
    unsigned mask, here;
    enum simt_kind kind;
    int line;
    const char *file;
};

// A warp's lanes as masks: asking 31 neighbours at each call would take most of the time.
struct warp {
    unsigned gone;    // lanes that have left, or stand at a barrier
    unsigned waiting; // lanes in any of the meetings
    unsigned meetings;
    struct meeting meeting[LANES];
};

static struct fibre fibre[THREADS_MAX];
static struct warp warps[THREADS_MAX / LANES];
static context scheduler;
static struct fibre *now;
static unsigned ready[THREADS_MAX], readies, threads, done, at_barrier;
static char *spare[THREADS_MAX]; // stacks; the last one is the likeliest in the caches
static unsigned spares;
static const struct fibre *first_at_barrier;
static struct simt_votes votes, votes_so_far;
static const char *kernel;
static const std::function<void()> *body;
static uint64_t state_of_choice = 1;
static struct simt_counts counts;
static struct {
    void *memory;
    size_t bytes;
} shared[SHARED_MAX];
static unsigned shareds;
#ifdef SIMT_ASAN
static const void *scheduler_stack;
static size_t scheduler_bytes;
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

void simt_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("simt: ", stderr);
    if (kernel) fprintf(stderr, "kernel %s, block %u of %u: ", kernel, blockIdx.x, gridDim.x);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    abort();
}

const char *cudaGetErrorString(cudaError_t err)
{
    switch (err) {
    case cudaSuccess: return "no error";
    case cudaErrorNotReady: return "not ready";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    default: return "an error";
    }
}

extern "C" void simt_seed(uint64_t seed)
{
    state_of_choice = seed * 2654435761u + 88172645463325252u;
}

extern "C" struct simt_counts simt_counted(void)
{
    return counts;
}

struct simt_counts *simt_counting()
{
    return &counts;
}

unsigned simt_choose(unsigned below)
{
    state_of_choice ^= state_of_choice << 13;
    state_of_choice ^= state_of_choice >> 7;
    state_of_choice ^= state_of_choice << 17;
    return (unsigned)((state_of_choice >> 32) * below >> 32);
}

static void leave_for(context *from, const struct fibre *to, void **fake)
{
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(fake, to ? to->stack : scheduler_stack,
                                   to ? (size_t)STACK_BYTES : scheduler_bytes);
#else
    (void)fake;
#endif
#if defined(__x86_64__)
    simt_switch(from, to ? to->where : scheduler);
#else
    swapcontext(from, to ? &to->where : &scheduler);
#endif
}

static void arrived(void *fake)
{
#ifdef SIMT_ASAN
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake, &stack, &bytes);
    if (now && fake == NULL && !scheduler_stack) {
        scheduler_stack = stack;
        scheduler_bytes = bytes;
    }
#else
    (void)fake;
#endif
}

static void to_scheduler()
{
    struct fibre *me = now;
    leave_for(&me->where, NULL, me->state == DONE ? NULL : &me->fake);
    arrived(me->fake);
}

static void make_ready(struct fibre *f)
{
    f->state = READY;
    ready[readies++] = f->index;
}

static void run_body()
{
    arrived(NULL);
    (*body)();
    now->state = DONE;
    done++;
    warps[now->index / LANES].gone |= 1u << now->index % LANES;
    if (at_barrier)
        simt_fail("thread %u left early while %u threads wait at a barrier", now->index,
                  at_barrier);
    to_scheduler();
    simt_fail("thread %u ran on after its end", now->index);
}

void simt_yield()
{
    make_ready(now);
    to_scheduler();
}

simt_votes simt_barrier(int vote, const char *file, int line)
{
    struct fibre *me = now;
    me->vote = vote != 0;
    me->file = file;
    me->line = line;
    if (done)
        simt_fail("thread %u waits at the barrier of %s:%d, but %u threads left early", me->index,
                  file, line, done);
    if (!at_barrier) {
        first_at_barrier = me;
        votes_so_far = simt_votes{0, 0, 1};
    }
    const struct fibre *first = first_at_barrier; // all others wait at the same one
    if (first->line != line || first->file != file)
        simt_fail("divergent barriers: thread %u at %s:%d, thread %u at %s:%d", me->index, file,
                  line, first->index, first->file, first->line);
    me->state = AT_BARRIER;
    warps[me->index / LANES].gone |= 1u << me->index % LANES;
    votes_so_far.count += me->vote;
    votes_so_far.any |= me->vote;
    votes_so_far.all &= me->vote;
    at_barrier++;
    if (at_barrier == threads) {
        votes = votes_so_far;
        for (unsigned i = 0; i < threads; i++) make_ready(&fibre[i]);
        for (unsigned i = 0; i < threads; i += LANES) warps[i / LANES].gone = 0;
        at_barrier = 0;
        counts.barriers++;
    }
    to_scheduler();
    return votes;
}

static uint64_t combine(simt_kind kind, uint64_t a, uint64_t b)
{
    unsigned x = (unsigned)a, y = (unsigned)b;
    switch (kind) {
    case SIMT_ADD: return x + y;
    case SIMT_MIN: return x < y ? x : y;
    case SIMT_MAX: return x > y ? x : y;
    case SIMT_AND: return x & y;
    default: return x | y;
    }
}

// The lane that a shuffle reads, or its own where that lane is outside the warp.
static int source_of(const struct fibre *f, int lane)
{
    int from = f->kind == SIMT_SHUFFLE        ? f->argument & 31
               : f->kind == SIMT_SHUFFLE_UP   ? lane - f->argument
               : f->kind == SIMT_SHUFFLE_DOWN ? lane + f->argument
                                              : lane ^ f->argument;
    return from < 0 || from >= LANES ? lane : from;
}

static void complete_warp(struct fibre *warp, unsigned mask)
{
    uint64_t all = 0;
    bool first = true;
    for (int i = 0; i < LANES; i++) {
        if (!(mask >> i & 1)) continue;
        if (warp[i].kind == SIMT_BALLOT)
            all |= warp[i].value << i;
        else
            all = first ? warp[i].value : combine(warp[i].kind, all, warp[i].value);
        first = false;
    }
    for (int i = 0; i < LANES; i++) {
        struct fibre *f = &warp[i];
        if (!(mask >> i & 1)) continue;
        f->result = all;
        if (f->kind >= SIMT_SHUFFLE && f->kind <= SIMT_SHUFFLE_XOR) {
            int from = source_of(f, i);
            if (!(mask >> from & 1))
                simt_fail("shuffle of %s:%d: lane %d reads lane %d, which is not in mask %08x",
                          f->file, f->line, i, from, mask);
            f->result = warp[from].value;
        }
        make_ready(f);
    }
    counts.warp_operations++;
}

static bool same(const struct meeting *m, const struct fibre *f)
{
    return m->mask == f->mask && m->kind == f->kind && m->line == f->line && m->file == f->file;
}

// Reports why f waits for ever: a lane of its mask is gone, or at another operation.
[[noreturn]] static void say_apart(const struct fibre *f, const struct warp *w, unsigned there)
{
    unsigned lane = f->index % LANES, mask = f->mask;
    for (unsigned i = 0; i < LANES; i++) {
        const struct fibre *other = f - lane + i;
        if (!(mask >> i & 1)) continue;
        if (w->gone >> i & 1)
            simt_fail("lane %u waits at %s:%d for lane %u, which %s", lane, f->file, f->line, i,
                      other->state == DONE ? "has left" : "stands at a barrier");
        if (there >> i & 1)
            simt_fail("lanes %u (%s:%d, mask %08x) and %u (%s:%d, mask %08x) are at different warp "
                      "operations",
                      lane, f->file, f->line, mask, i, other->file, other->line, other->mask);
    }
    simt_fail("the emulator is wrong about a warp");
}

// The meeting of the lanes of f's mask at f's operation. Fails if one of them is elsewhere.
static struct meeting *meeting_of(struct warp *w, const struct fibre *f)
{
    struct meeting *m = w->meeting, *end = w->meeting + w->meetings;
    while (m < end && !same(m, f)) m++;
    unsigned elsewhere = w->waiting & ~(m < end ? m->here : 0) & f->mask;
    if (w->gone & f->mask || elsewhere) say_apart(f, w, elsewhere);
    if (m == end) {
        w->meetings++;
        *m = meeting{f->mask, 0, f->kind, f->line, f->file};
    }
    return m;
}

static void end_meeting(struct warp *w, struct meeting *m)
{
    w->waiting &= ~m->here;
    *m = w->meeting[--w->meetings];
}

uint64_t simt_warp(simt_kind kind, unsigned mask, uint64_t value, int argument, const char *file,
                   int line)
{
    struct fibre *me = now, *warp = fibre + (me->index & ~31u);
    unsigned lane = me->index & 31, here = threads - (me->index & ~31u);
    if (!(mask >> lane & 1))
        simt_fail("lane %u calls a warp operation at %s:%d whose mask %08x leaves it out", lane,
                  file, line, mask);
    if (here < LANES && mask >> here)
        simt_fail("mask %08x of %s:%d names lanes that the block does not have", mask, file, line);
    me->kind = kind;
    me->mask = mask;
    me->value = value;
    me->argument = argument;
    me->file = file;
    me->line = line;
    me->state = AT_WARP;
    struct meeting *meeting = meeting_of(&warps[me->index / LANES], me);
    meeting->here |= 1u << lane;
    warps[me->index / LANES].waiting |= 1u << lane;
    if (meeting->here == mask) {
        end_meeting(&warps[me->index / LANES], meeting);
        complete_warp(warp, mask);
    }
    to_scheduler();
    return me->result;
}

void simt_shared(void *memory, size_t bytes)
{
    for (unsigned i = 0; i < shareds; i++)
        if (shared[i].memory == memory) return;
    if (shareds == SHARED_MAX) simt_fail("more than %d shared objects", SHARED_MAX);
    shared[shareds].memory = memory;
    shared[shareds++].bytes = bytes;
    memset(memory, simt_choose(2) ? 0xff : 0xa5, bytes);
}

// ---- a block
static void prepare(struct fibre *f, unsigned index)
{
    f->index = index;
    f->fake = NULL;
    f->stack = NULL;
    make_ready(f);
}

// At its first step a fibre takes the stack that was freed last, so fibres that never wait share
// one.
static void begin(struct fibre *f)
{
    if (!spares) {
        void *m =
            mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED) simt_fail("no memory for stacks");
        spare[spares++] = (char *)m;
    }
    f->stack = spare[--spares];
#if defined(__x86_64__)
    // Stacks that all began at the top of a page would share few cache lines.
    void **top = (void **)(void *)(f->stack + STACK_BYTES - f->index % 32 * 128) - 2;
    *top = (void *)run_body;
    memset(top - 6, 0, 6 * sizeof *top);
    f->where = top - 6;
#else
    getcontext(&f->where);
    f->where.uc_stack.ss_sp = f->stack;
    f->where.uc_stack.ss_size = STACK_BYTES;
    f->where.uc_link = NULL;
    makecontext(&f->where, run_body, 0);
#endif
}

static void say_stuck()
{
    for (unsigned i = 0; i < threads; i++)
        if (fibre[i].state == AT_WARP)
            simt_fail("thread %u waits for ever at the warp operation of %s:%d, mask %08x", i,
                      fibre[i].file, fibre[i].line, fibre[i].mask);
    simt_fail("%u of %u threads wait for ever at a barrier", at_barrier, threads);
}

static void run_block(unsigned block)
{
    blockIdx = dim3(block);
    threads = blockDim.x;
    readies = done = at_barrier = shareds = 0;
#ifdef SIMT_ASAN
    scheduler_stack = NULL; // the current thread may be another one
#endif
    for (unsigned i = 0; i < threads; i++) prepare(&fibre[i], i);
    for (unsigned i = 0; i < threads; i += LANES)
        warps[i / LANES].gone = warps[i / LANES].waiting = warps[i / LANES].meetings = 0;
    while (readies) {
        unsigned at = simt_choose(readies);
        struct fibre *f = &fibre[ready[at]];
        ready[at] = ready[--readies];
        if (!f->stack) begin(f);
        now = f;
        threadIdx = dim3(now->index);
        counts.switches++;
        void *fake = NULL;
        leave_for(&scheduler, now, &fake);
        now = NULL;
        arrived(fake);
        if (f->state == DONE) spare[spares++] = f->stack;
    }
    if (done < threads) say_stuck();
    counts.blocks++;
}

void simt_run(const char *name, dim3 grid, dim3 block, const std::function<void()> &run)
{
    if (grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1 || !grid.x || !block.x ||
        block.x > THREADS_MAX)
        simt_fail("launch of %s: grid %u x %u x %u, block %u x %u x %u", name, grid.x, grid.y,
                  grid.z, block.x, block.y, block.z);
    kernel = name;
    body = &run;
    gridDim = grid;
    blockDim = block;
    // Blocks run in an order of the seed's: a step that shares no factor with their count visits
    // all.
    unsigned step = 1 + simt_choose(grid.x), at = simt_choose(grid.x);
    for (unsigned a = step, b = grid.x; b;) { // greatest common divisor
        unsigned rest = a % b;
        a = b;
        b = rest;
        if (!b && a != 1) step = 1;
    }
    for (unsigned i = 0; i < grid.x; i++, at = (unsigned)(((uint64_t)at + step) % grid.x))
        run_block(at);
    kernel = NULL;
}
