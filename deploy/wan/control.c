// The control socket, both ends. See control.h.
#include "deploy/wan/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "deploy/wan/report.h"
#include "deploy/wan/state.h"
#include "deploy/wan/topology.h"

enum { REPLY_BYTES_MAX = 4 << 20, BACKLOG = 16 };

static struct sockaddr_un control_address(const char *instance)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, dp_state_path(instance, "socket").text, sizeof address.sun_path);
    return address;
}

// ---------------------------------------------------------------- daemon

lh_err dp_control_listen(const char *instance, int *listener)
{
    struct sockaddr_un address = control_address(instance);
    *listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    umask(0077);
    if (*listener < 0 || bind(*listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(*listener, BACKLOG) < 0)
        return lh_fail_errno(errno, "%s", address.sun_path);
    return LH_OK;
}

int dp_control_accept(int listener)
{
    int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int bytes = REPLY_BYTES_MAX; // a whole reply
    if (client >= 0) setsockopt(client, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    return client;
}

static void reset_counters(struct dp_world *world)
{
    for (int from = 0; from < world->regions; from++)
        for (int to = 0; to < world->regions; to++)
            world->link[from][to].count = (struct dp_counters){0};
}

static LH_MUST lh_err obey(struct dp_world *world, char *const *words, int count, FILE *out)
{
    const char *command = count > 0 ? words[0] : "";
    if (strcmp(command, "set") == 0) return dp_world_change(world, words + 1, count - 1);
    if (strcmp(command, "show") == 0)
        dp_report_settings(world, out);
    else if (strcmp(command, "stats") == 0)
        dp_report_counters(world, out, count > 1);
    else if (strcmp(command, "reset") == 0)
        reset_counters(world);
    else
        return lh_fail(LH_ERR_INVALID, "no such command '%s'", command);
    return LH_OK;
}

static void answer(struct dp_world *world, char *request, FILE *out)
{
    char *words[DP_WORDS_MAX];
    fputc('+', out);
    int count = dp_world_words(request, "\n", words);
    lh_err err = obey(world, words, count, out);
    if (!err) return;
    rewind(out);
    fprintf(out, "-%s", lh_err_text(err));
}

void dp_control_serve(struct dp_world *world, int client)
{
    char request[DP_LINE_BYTES], *text = NULL;
    size_t size = 0;
    ssize_t length = recv(client, request, sizeof request - 1, 0);
    FILE *out = open_memstream(&text, &size);
    if (length > 0 && out) {
        request[length] = 0;
        answer(world, request, out);
    }
    if (out) fclose(out);
    for (size_t sent = 0; sent < size; sent += DP_REPLY_CHUNK) {
        size_t left = size - sent;
        send(client, text + sent, left < DP_REPLY_CHUNK ? left : DP_REPLY_CHUNK, MSG_NOSIGNAL);
    }
    free(text);
    close(client);
}

// ---------------------------------------------------------------- client

static LH_MUST lh_err write_request(char *const *words, int count, char *text, size_t *length)
{
    *length = 0;
    for (int i = 0; i < count; i++) {
        size_t size = strlen(words[i]) + 1;
        if (*length + size >= DP_LINE_BYTES || count >= DP_WORDS_MAX)
            return lh_fail(LH_ERR_TOO_LARGE, "the command is too long");
        memcpy(text + *length, words[i], size);
        *length += size;
        text[*length - 1] = '\n';
    }
    return LH_OK;
}

static LH_MUST lh_err send_request(const char *instance, char *const *words, int count, int *daemon)
{
    struct sockaddr_un address = control_address(instance);
    char text[DP_LINE_BYTES];
    size_t length;
    LH_TRY(write_request(words, count, text, &length));
    *daemon = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (*daemon < 0 || connect(*daemon, (struct sockaddr *)&address, sizeof address) < 0)
        return lh_fail(LH_ERR_UNAVAILABLE, "%s is not up", instance);
    if (send(*daemon, text, length, MSG_NOSIGNAL) < 0) return lh_fail_errno(errno, "%s", instance);
    return LH_OK;
}

// Prints the answer. Returns stdout if the command was obeyed, stderr if not, NULL for no answer.
static FILE *print_answer(int daemon)
{
    char text[DP_REPLY_CHUNK];
    FILE *out = NULL;
    for (ssize_t size; (size = recv(daemon, text, sizeof text, 0)) > 0;) {
        bool first = !out;
        if (first) out = text[0] == '+' ? stdout : stderr;
        if (first && out == stderr) fputs("wanem: ", stderr);
        fwrite(text + first, 1, (size_t)size - first, out);
    }
    if (out == stderr) fputc('\n', stderr);
    return out;
}

int dp_control_request(const char *instance, char *const *words, int count)
{
    int daemon = -1;
    lh_err err = send_request(instance, words, count, &daemon);
    FILE *out = err ? NULL : print_answer(daemon);
    if (!err && !out) err = lh_fail(LH_ERR_UNAVAILABLE, "%s: no answer", instance);
    if (err) fprintf(stderr, "wanem: %s\n", lh_err_text(err));
    if (daemon >= 0) close(daemon);
    return out == stdout ? 0 : 1;
}
