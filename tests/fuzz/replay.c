// Replays a corpus through a fuzz target without libFuzzer, so that every compiler and sanitizer
// sees the formats' known inputs in the ordinary tests: `fuzz_NAME CORPUS_DIR`.
//
// For each file, sorted by name: the file, its prefixes (every length up to CUTS of them, evenly
// spread), and FLIPS copies with one bit flipped, chosen by a fixed sequence. Each input has a
// block of exactly its size, so that a sanitizer sees a read past the end. An empty folder fails,
// because it would prove nothing.
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUTS = 64, FLIPS = 256, FILE_BYTES_MAX = 1 << 20 };

static size_t inputs;

static void feed(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) abort();
    if (size) memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    inputs++;
}

static void feed_variants(uint8_t *data, size_t size)
{
    size_t cuts = size < CUTS ? size : CUTS;
    uint64_t chance = 1;

    feed(data, size);
    for (size_t i = 0; i < cuts; i++) feed(data, i * size / cuts);
    for (size_t i = 0; size && i < FLIPS; i++) {
        chance = chance * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator
        size_t bit = (size_t)(chance >> 16) % (size * 8);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        feed(data, size);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

// Returns 0, or 1 with a line on stderr.
static int feed_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(FILE_BYTES_MAX);
    size_t size = file && data ? fread(data, 1, FILE_BYTES_MAX, file) : 0;
    int failed = !file || !data || ferror(file) || size == FILE_BYTES_MAX;
    if (failed)
        fprintf(stderr, "replay: cannot read %s, or it has over %d bytes\n", path, FILE_BYTES_MAX);
    else
        feed_variants(data, size);
    if (file) fclose(file);
    free(data);
    return failed;
}

static int plain(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **entry = NULL;
    int failed = 0;
    int count = argc == 2 ? scandir(argv[1], &entry, plain, alphasort) : -1;

    for (int i = 0; i < count; i++) {
        failed |= feed_file(argv[1], entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    printf("%d files, %zu inputs\n", count > 0 ? count : 0, inputs);
    if (count < 1) fprintf(stderr, "replay: no corpus: %s\n", argc == 2 ? argv[1] : "(no folder)");
    return failed || count < 1;
}
