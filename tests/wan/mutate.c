// Reads randomly changed topologies: each is accepted, or refused with the file's name and a
// reason. `mutate FILE ROUNDS SEED`; the seed determines the sequence.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/wan/topology.h"

enum { TEXT_MAX = 8192, LENGTH_MAX = 6000, CHANGES_MAX = 4, SPAN_MAX = 40 };

static const char *const WORDS[] = {
    "region ", "link ", "all ",        "to ", "rtt=",  "ms ",   "0",      "99999999999999999999",
    ".",       "-",     "loss=",       "%",   "rate=", "gbit ", "queue=", "jitter=",
    "hosts=",  "mtu ",  "sysctl net.", "=",   "#",     "\n",    "us ",    "eu ",
    " "};

struct text {
    char bytes[TEXT_MAX];
    size_t length;
    uint64_t chance;
};

static size_t draw(struct text *t, size_t below)
{
    t->chance = t->chance * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator
    return (size_t)(t->chance >> 33) % below;
}

static void change(struct text *t)
{
    size_t at = draw(t, t->length + 1), span = draw(t, SPAN_MAX);
    const char *word = WORDS[draw(t, sizeof WORDS / sizeof *WORDS)];
    if (span > t->length - at) span = t->length - at;
    switch (draw(t, 4)) {
    case 0: // replace a byte
        t->bytes[at] = (char)draw(t, 256);
        t->length += at == t->length;
        break;
    case 1: // insert a word
        memmove(t->bytes + at + strlen(word), t->bytes + at, t->length - at);
        memcpy(t->bytes + at, word, strlen(word));
        t->length += strlen(word);
        break;
    case 2: // remove some bytes
        memmove(t->bytes + at, t->bytes + at + span, t->length - at - span);
        t->length -= span;
        break;
    default: // repeat some bytes
        memmove(t->bytes + at + span, t->bytes + at, t->length - at);
        t->length += span;
    }
}

// Returns false if the result is neither a valid world nor a proper refusal. *taken: accepted.
static bool read_one(struct text *t, struct dp_world *world, bool *taken)
{
    FILE *in = t->length ? fmemopen(t->bytes, t->length, "r") : fopen("/dev/null", "r");
    if (!in) return false;
    memset(world, 0, sizeof *world);
    lh_err err = dp_world_read(world, "world.fuzz", in);
    fclose(in);
    *taken = err == LH_OK;
    if (err) return err == LH_ERR_INVALID && strncmp(lh_err_text(err), "world.fuzz:", 11) == 0;
    return world->regions >= 2 && world->regions <= DP_WORLD_REGIONS_MAX;
}

static bool load(const char *path, struct text *t)
{
    FILE *in = fopen(path, "r");
    if (!in) return false;
    t->length = fread(t->bytes, 1, LENGTH_MAX / 2, in);
    fclose(in);
    return t->length > 0;
}

int main(int argc, char **argv)
{
    static struct text seed, text;
    struct dp_world *world = malloc(sizeof *world);
    long rounds = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
    long taken = 0, refused = 0, wrong = 0;
    if (!world || rounds < 1 || !load(argv[1], &seed)) {
        fprintf(stderr, "usage: mutate FILE ROUNDS SEED\n");
        return 2;
    }
    seed.chance = strtoull(argv[3], NULL, 10);
    for (long round = 0; round < rounds && !wrong; round++) {
        bool good = false;
        uint64_t chance = seed.chance;
        text = seed;
        for (size_t n = 1 + draw(&text, CHANGES_MAX); n && text.length < LENGTH_MAX; n--)
            change(&text);
        seed.chance = text.chance;
        if (!read_one(&text, world, &good)) {
            wrong++;
            printf("round %ld, state %llu: %s\n%.*s\n", round, (unsigned long long)chance,
                   lh_err_text(LH_ERR_INVALID), (int)text.length, text.bytes);
        }
        taken += good;
        refused += !good;
    }
    free(world);
    printf("%ld taken, %ld refused\n", taken, refused);
    return wrong || taken == 0 || refused == 0;
}
