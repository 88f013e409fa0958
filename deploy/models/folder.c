// A model's files. See folder.h.
#include "deploy/models/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/regular.h"
#include "common/format/json.h"

static const char ONE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json";

// ---------------------------------------------------------------- one file

static LH_MUST lh_err read_at(int fd, const char *path, uint64_t at, size_t bytes, uint8_t *out)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, out + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return lh_fail_errno(errno, "%s", path);
        if (!got) return lh_fail(LH_ERR_MALFORMED, "%s ends early: it was changed meanwhile", path);
        done += (size_t)got;
    }
    return LH_OK;
}

// `git clone` without Git LFS leaves a text of three lines instead of a file.
static LH_MUST lh_err check_pointer(const char *path, const uint8_t *first, size_t bytes)
{
    static const char begin[] = "version https://git-lfs";
    size_t n = sizeof begin - 1;
    if (bytes < n || memcmp(first, begin, n) != 0) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED,
                   "%s is a Git LFS pointer, and not the file itself: `git lfs pull` in its folder "
                   "gets it",
                   path);
}

static LH_MUST lh_err read_header(int fd, uint64_t size, struct dp_folder_file *file)
{
    uint8_t first[64] = {0};
    size_t begin = size < sizeof first ? (size_t)size : sizeof first;
    uint64_t length = 0;
    LH_TRY(read_at(fd, file->path, 0, begin, first));
    LH_TRY(check_pointer(file->path, first, begin));
    if (begin > DP_ST_LENGTH_BYTES) begin = DP_ST_LENGTH_BYTES;
    LH_TRY(dp_st_length(file->path, lh_span(first, begin), size, &length));
    uint8_t *header = malloc(length + 1);
    if (!header)
        return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for its header of %" PRIu64 " bytes",
                       file->path, length);
    lh_err err = read_at(fd, file->path, DP_ST_LENGTH_BYTES, length, header);
    if (!err)
        err = dp_st_parse(file->path, lh_span(header, length), size - DP_ST_LENGTH_BYTES - length,
                          &file->st);
    free(header);
    return err;
}

// LH_ERR_NOT_FOUND: the path is a link whose target is missing.
static LH_MUST lh_err check_link(const char *path)
{
    char target[DP_PATH_BYTES];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0 || dp_file_exists(path)) return LH_OK;
    target[n] = 0;
    return lh_fail(LH_ERR_NOT_FOUND,
                   "%s is a link to %.300s, which is not there: copy the folder with its targets "
                   "(cp -rL)",
                   path, target);
}

static LH_MUST lh_err open_file(const char *path, int *fd)
{
    LH_TRY(check_link(path));
    lh_err err = lh_regular_open(path, O_RDONLY, 0, fd);
    if (err != LH_ERR_IO) return err;
    return errno == ENOENT ? lh_fail(LH_ERR_NOT_FOUND, "%s: no such file", path)
                           : lh_fail_errno(errno, "%s", path);
}

// Adds the folder's next file, whose path is set.
static LH_MUST lh_err add_file(struct dp_folder *f)
{
    struct dp_folder_file *file = &f->file[f->files];
    struct stat is;
    int fd;
    LH_TRY(open_file(file->path, &fd));
    lh_err err = fstat(fd, &is) ? lh_fail_errno(errno, "%s", file->path) : LH_OK;
    if (!err && !S_ISREG(is.st_mode)) err = lh_fail(LH_ERR_MALFORMED, "%s: is no file", file->path);
    if (!err) err = read_header(fd, (uint64_t)is.st_size, file);
    close(fd);
    f->files += !err;
    return err;
}

static LH_MUST lh_err no_memory(const char *path)
{
    return lh_fail(LH_ERR_NO_MEMORY, "%s: no memory for its tensors", path);
}

static LH_MUST lh_err one_file(struct dp_folder *f, const char *path)
{
    f->file = calloc(1, sizeof *f->file);
    if (!f->file) return no_memory(path);
    LH_TRY(dp_path(f->file[0].path, "%s", path));
    return add_file(f);
}

// ---------------------------------------------------------------- the index

// Python writes and reads three words for numbers that JSON lacks: they become null.
static void blank_words(uint8_t *text, size_t n)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        for (size_t k = 0; !quoted && i < n && k < LH_COUNT(words); k++) {
            size_t len = strlen(words[k]);
            if (n - i < len || memcmp(text + i, words[k], len) != 0) continue;
            memset(text + i, ' ', len);
            memcpy(text + i, len == 3 ? "0  " : "null", len == 3 ? 3 : 4);
            break;
        }
    }
}

lh_err dp_folder_json(const char *dir, const char *name, json_t **out)
{
    char path[DP_PATH_BYTES];
    struct lh_buf text = lh_buf(DP_ST_HEADER_BYTES_MAX);
    *out = NULL;
    LH_TRY(dp_path(path, "%s/%s", dir, name));
    LH_TRY(check_link(path));
    lh_err err = dp_file_read(path, &text);
    if (err == LH_ERR_NOT_FOUND) {
        lh_buf_free(&text);
        return LH_OK;
    }
    if (!err) err = check_pointer(path, text.data, text.len);
    if (!err) blank_words(text.data, text.len);
    if (!err) err = lh_json_load(path, lh_buf_span(&text), DP_ST_HEADER_BYTES_MAX, out);
    lh_buf_free(&text);
    if (!err && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        err = lh_fail(LH_ERR_MALFORMED, "%s: no JSON object", path);
    }
    return err;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The files' names, each once, in ascending order. free() the list; the JSON owns the texts.
static LH_MUST lh_err file_names(const char *dir, const json_t *map, const char ***out,
                                 size_t *count)
{
    const char *key;
    json_t *value;
    size_t n = 0, kept = 0;
    const char **name = calloc(json_object_size(map) + 1, sizeof *name);
    if (!name) return no_memory(dir);
    json_object_foreach((json_t *)map, key, value)
    {
        const char *file = json_string_value(value);
        if (!file || !file[0] || strchr(file, '/') || !strcmp(file, "..")) {
            free(name);
            return lh_fail(LH_ERR_MALFORMED,
                           "%s/%s: tensor %.150s: its file must be a name without a slash", dir,
                           INDEX, key);
        }
        name[n++] = file;
    }
    qsort(name, n, sizeof *name, by_text);
    for (size_t i = 0; i < n; i++)
        if (!kept || strcmp(name[kept - 1], name[i]) != 0) name[kept++] = name[i];
    *out = name;
    *count = kept;
    return LH_OK;
}

static LH_MUST lh_err open_names(struct dp_folder *f, const char **name, size_t count)
{
    if (count > DP_FOLDER_FILES_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "%s/%s: %zu files, at most %d", f->dir, INDEX, count,
                       DP_FOLDER_FILES_MAX);
    f->file = calloc(count + 1, sizeof *f->file);
    if (!f->file) return no_memory(f->dir);
    for (size_t i = 0; i < count; i++) {
        LH_TRY(dp_path(f->file[f->files].path, "%s/%s", f->dir, name[i]));
        lh_err err = add_file(f);
        if (err == LH_ERR_NOT_FOUND) LH_TRY(check_link(f->file[f->files].path));
        if (err == LH_ERR_NOT_FOUND)
            return lh_fail(err, "%s/%s names %.200s, which is not there", f->dir, INDEX, name[i]);
        if (err) return err;
    }
    return LH_OK;
}

// Checks that the index lists every tensor with its file, and no others.
static LH_MUST lh_err check_map(const struct dp_folder *f, const json_t *map)
{
    const char *key;
    json_t *value;
    for (uint32_t i = 0; i < f->tensors; i++) {
        const struct dp_folder_tensor *t = &f->tensor[i];
        const char *said = json_string_value(json_object_get(map, t->t.name));
        const char *slash = strrchr(t->file->path, '/');
        if (!said || strcmp(said, slash + 1) != 0)
            return lh_fail(LH_ERR_MALFORMED, "%s: tensor %.150s is in it, %s %s%.100s",
                           t->file->path, t->t.name, INDEX, said ? "says in " : "does not name it",
                           said ? said : "");
    }
    json_object_foreach((json_t *)map, key, value)
    {
        if (!dp_folder_find(f, key))
            return lh_fail(LH_ERR_MALFORMED, "%s/%s: tensor %.150s is not in %.100s", f->dir, INDEX,
                           key, json_string_value(value));
    }
    return LH_OK;
}

// ---------------------------------------------------------------- the whole

static int by_name(const void *a, const void *b)
{
    const struct dp_folder_tensor *x = a, *y = b;
    return strcmp(x->t.name, y->t.name);
}

static LH_MUST lh_err list_tensors(struct dp_folder *f)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < f->files; i++) count += f->file[i].st.tensors;
    if (count > DP_ST_TENSORS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "%s: %" PRIu64 " tensors, at most %d", f->dir, count,
                       DP_ST_TENSORS_MAX);
    f->tensor = calloc(count + 1, sizeof *f->tensor);
    if (!f->tensor) return no_memory(f->dir);
    for (unsigned i = 0; i < f->files; i++)
        for (uint32_t k = 0; k < f->file[i].st.tensors; k++)
            f->tensor[f->tensors++] =
                (struct dp_folder_tensor){f->file[i].st.tensor[k], &f->file[i]};
    qsort(f->tensor, f->tensors, sizeof *f->tensor, by_name);
    for (uint32_t i = 1; i < f->tensors; i++)
        if (!strcmp(f->tensor[i - 1].t.name, f->tensor[i].t.name))
            return lh_fail(LH_ERR_MALFORMED, "tensor %.150s is in %s and in %s: one is too many",
                           f->tensor[i].t.name, f->tensor[i - 1].file->path,
                           f->tensor[i].file->path);
    return LH_OK;
}

static LH_MUST lh_err open_index(struct dp_folder *f, const json_t *index)
{
    const json_t *map = json_object_get(index, "weight_map");
    const char **name = NULL;
    size_t count = 0;
    if (!json_is_object(map))
        return lh_fail(LH_ERR_MALFORMED, "%s/%s: no object \"weight_map\"", f->dir, INDEX);
    LH_TRY(file_names(f->dir, map, &name, &count));
    lh_err err = open_names(f, name, count);
    free(name);
    if (!err) err = list_tensors(f);
    return err ? err : check_map(f, map);
}

static LH_MUST lh_err open_folder(struct dp_folder *f)
{
    char path[DP_PATH_BYTES];
    json_t *index;
    LH_TRY(dp_path(path, "%s/%s", f->dir, INDEX));
    LH_TRY(check_link(path));
    LH_TRY(dp_path(path, "%s/%s", f->dir, ONE));
    LH_TRY(check_link(path));
    if (dp_file_exists(path)) { // as transformers does: the single file comes first
        LH_TRY(one_file(f, path));
        return list_tensors(f);
    }
    LH_TRY(dp_folder_json(f->dir, INDEX, &index));
    if (index) {
        lh_err err = open_index(f, index);
        json_decref(index);
        return err;
    }
    char adapter[DP_PATH_BYTES];
    LH_TRY(dp_path(adapter, "%s/adapter_config.json", f->dir));
    if (dp_file_exists(adapter))
        return lh_fail(LH_ERR_NOT_FOUND,
                       "%s holds an adapter of PEFT, and not a whole model: begin the run in "
                       "Python, longhaul.save_initial(PeftModel.from_pretrained(...), FOLDER)",
                       f->dir);
    return lh_fail(LH_ERR_NOT_FOUND,
                   "%s holds neither %s nor %s; of a model in another format make one in Python: "
                   "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)",
                   f->dir, ONE, INDEX);
}

lh_err dp_folder_open(struct dp_folder *f, const char *path)
{
    struct stat is;
    *f = (struct dp_folder){.fd = -1};
    LH_TRY(check_link(path));
    if (stat(path, &is))
        return errno == ENOENT ? lh_fail(LH_ERR_NOT_FOUND, "%s: no such folder or file", path)
                               : lh_fail_errno(errno, "%s", path);
    if (S_ISDIR(is.st_mode)) {
        LH_TRY(dp_path(f->dir, "%s", path));
        return open_folder(f);
    }
    LH_TRY(one_file(f, path));
    return list_tensors(f);
}

void dp_folder_close(struct dp_folder *f)
{
    for (unsigned i = 0; i < f->files; i++) dp_st_free(&f->file[i].st);
    free(f->file);
    free(f->tensor);
    free(f->renamed);
    if (f->fd >= 0) close(f->fd);
    *f = (struct dp_folder){.fd = -1};
}

const struct dp_folder_tensor *dp_folder_find(const struct dp_folder *f, const char *name)
{
    const struct dp_folder_tensor key = {.t.name = name};
    return f->tensors ? bsearch(&key, f->tensor, f->tensors, sizeof key, by_name) : NULL;
}

lh_err dp_folder_rename(struct dp_folder *f, const char *name, const char *to)
{
    struct dp_folder_tensor key = {.t.name = name}, *t;
    t = bsearch(&key, f->tensor, f->tensors, sizeof key, by_name);
    LH_ASSERT(t && !f->renamed && !dp_folder_find(f, to));
    f->renamed = strdup(to);
    if (!f->renamed) return no_memory(f->dir);
    t->t.name = f->renamed;
    qsort(f->tensor, f->tensors, sizeof *f->tensor, by_name);
    return LH_OK;
}

lh_err dp_folder_bytes(struct dp_folder *f, const struct dp_folder_tensor *t, uint64_t from,
                       size_t bytes, uint8_t *out)
{
    if (f->opened != t->file) {
        if (f->fd >= 0) close(f->fd);
        f->opened = NULL;
        LH_TRY(open_file(t->file->path, &f->fd));
        f->opened = t->file;
    }
    return read_at(f->fd, t->file->path, t->file->st.data_at + t->t.at + from, bytes, out);
}
