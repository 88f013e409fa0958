// The in-process transport: fabric, doors and links; calls are transport_mem_call.c. See
// transport_mem.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/world/transport_mem_core.h"

static const int64_t KEEPALIVE = 20 * LH_SECOND; // time until a dead peer's silence is noticed

// ---------------------------------------------------------------- the table: doors and links

struct mem_node *lh_mem_find(struct lh_fabric *f, const char *address)
{
    for (size_t i = 0; i < f->nodes; i++)
        if (strcmp(f->node[i].address, address) == 0) return &f->node[i];
    return NULL;
}

static lh_err mem_listen(struct lh_transport *base, const char *address,
                         const struct lh_service *service, char *bound, size_t size)
{
    struct mem_transport *t = (struct mem_transport *)base;
    struct lh_fabric *f = t->fabric;
    char wanted[64];
    pthread_mutex_lock(&f->lock);
    size_t len = strlen(address);
    if (len > 2 && strcmp(address + len - 2, ":0") == 0)
        snprintf(wanted, sizeof wanted, "mem:%d", ++f->next_port);
    else
        snprintf(wanted, sizeof wanted, "%s", address);
    struct mem_node *node = lh_mem_find(f, wanted);
    lh_err err = LH_OK;
    if (node && node->transport) {
        err =
            lh_fail(LH_ERR_EXISTS, "%s is in use by another process; choose another port", wanted);
    } else if (!node && f->nodes == LH_MEM_NODES_MAX) {
        err = lh_fail(LH_ERR_TOO_LARGE, "more than %d nodes", LH_MEM_NODES_MAX);
    } else {
        if (!node) {
            node = &f->node[f->nodes++];
            snprintf(node->address, sizeof node->address, "%s", wanted);
        }
        node->env = t->env;
        node->fabric = f;
        node->transport = t;
        t->service = service;
        snprintf(bound, size, "%s", wanted);
    }
    pthread_mutex_unlock(&f->lock);
    return err;
}

static lh_err mem_dial(struct lh_transport *base, const char *address, enum lh_role role,
                       enum lh_line line, struct lh_link **out)
{
    (void)line; // each link is a connection here
    struct mem_link *l = calloc(1, sizeof *l);
    if (!l) return LH_ERR_NO_MEMORY;
    l->base.transport_ops = &lh_mem_ops;
    l->t = (struct mem_transport *)base;
    l->role = role;
    snprintf(l->list, sizeof l->list, "%s", address);
    snprintf(l->address, sizeof l->address, "%.*s", (int)strcspn(address, ","), address);
    l->next = l->t->links;
    l->t->links = l;
    *out = &l->base;
    return LH_OK;
}

static void mem_expect(struct lh_link *link, uint64_t identity)
{
    ((struct mem_link *)link)->identity = identity;
}

static void mem_hangup(struct lh_link *link)
{
    struct mem_link *l = (struct mem_link *)link;
    for (struct mem_half *h = l->t ? l->t->halves : NULL, *next; h; h = next) {
        next = h->next;
        if (h->link != l) continue;
        lh_mem_end(h, LH_ERR_CANCELLED, "the client hung up", LH_ERR_CANCELLED, "hung up");
        next = l->t->halves; // callbacks may have closed further ones
    }
    if (l->t) {
        struct mem_link **at = &l->t->links;
        while (*at != l) at = &(*at)->next;
        *at = l->next;
    }
    free(l);
}

static struct lh_trip mem_trip(struct lh_link *link)
{
    return ((const struct mem_link *)link)->trip;
}

const struct lh_transport_ops lh_mem_ops = {
    .listen = mem_listen,
    .dial = mem_dial,
    .expect = mem_expect,
    .hangup = mem_hangup,
    .open = lh_mem_open,
    .send = lh_mem_send,
    .read = lh_mem_read,
    .finish = lh_mem_finish,
    .cancel = lh_mem_cancel,
    .trip = mem_trip,
};

// ---------------------------------------------------------------- fabric and nodes

struct lh_fabric *lh_fabric_create(void)
{
    struct lh_fabric *f = calloc(1, sizeof *f);
    LH_ASSERT(f);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

void lh_fabric_destroy(struct lh_fabric *f)
{
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void lh_fabric_fates(struct lh_fabric *f, lh_fate_fn fn, void *arg)
{
    f->fate = fn;
    f->fate_arg = arg;
}

void lh_fabric_tap(struct lh_fabric *f, lh_tap_fn fn, void *arg)
{
    f->tap = fn;
    f->tap_arg = arg;
}

void lh_fabric_taken(struct lh_fabric *f, lh_taken_fn fn, void *arg)
{
    f->taken = fn;
    f->taken_arg = arg;
}

void lh_fabric_pace(struct lh_fabric *f, lh_pace_fn fn, void *arg)
{
    f->pace = fn;
    f->pace_arg = arg;
}

lh_err lh_transport_mem_create(struct lh_fabric *f, struct lh_env *env, const struct lh_peer *self,
                               bool fake, struct lh_transport **out)
{
    struct mem_transport *t = calloc(1, sizeof *t);
    if (!t) return LH_ERR_NO_MEMORY;
    *t = (struct mem_transport){
        .base = {&lh_mem_ops}, .fabric = f, .env = env, .self = *self, .fake = fake};
    *out = &t->base;
    return LH_OK;
}

void lh_transport_mem_leads(struct lh_transport *t, uint64_t number)
{
    ((struct mem_transport *)t)->leads = number;
}

void lh_transport_mem_leader(struct lh_transport *t, struct lh_leader *leader)
{
    ((struct mem_transport *)t)->leader = leader;
}

static void close_door(struct mem_transport *t)
{
    pthread_mutex_lock(&t->fabric->lock);
    for (size_t i = 0; i < t->fabric->nodes; i++)
        if (t->fabric->node[i].transport == t) t->fabric->node[i].transport = NULL;
    pthread_mutex_unlock(&t->fabric->lock);
}

static void free_transport(struct mem_transport *t)
{
    for (struct mem_link *l = t->links; l; l = l->next) l->t = NULL; // their owners free them
    free(t);
}

void lh_transport_mem_kill(struct lh_transport *base, bool silent)
{
    struct mem_transport *t = (struct mem_transport *)base;
    close_door(t);
    t->dead = true;
    while (t->halves) {
        struct mem_half *h = t->halves;
        if (silent) h->fate.delay_ns = KEEPALIVE;
        lh_mem_end(h, LH_ERR_UNAVAILABLE, "the peer went away", LH_ERR_KILLED, "killed");
    }
    free_transport(t);
}

void lh_fabric_sever(struct lh_fabric *f, const char *a, const char *b)
{
    for (size_t i = 0; i < f->nodes; i++) {
        struct mem_transport *t = f->node[i].transport;
        if (!t) continue;
        bool is_a = strcmp(t->self.name, a) == 0, is_b = strcmp(t->self.name, b) == 0;
        const char *other = is_a ? b : is_b ? a : NULL;
        for (struct mem_half *h = t->halves; other && h; h = h->next) {
            if (strcmp(h->far_name, other) != 0) continue;
            lh_mem_break(h);
        }
    }
}
