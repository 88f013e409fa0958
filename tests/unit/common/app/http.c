// The HTTP server over loopback: the answer for each path, refusals, and silent peers, which must
// not keep others out.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/app/http.h"
#include "tests/test.h"

enum { ANSWER = 1 << 20 };

static struct lh_env *env;

static struct lh_http *start(const char *log, const char *page)
{
    struct lh_http *h;
    struct lh_http_conf conf = {"127.0.0.1:0", env, log, page, page ? 1 : 0};
    assert_int_equal(lh_http_start(&conf, &h), LH_OK);
    return h;
}

static int reach(const struct lh_http *h)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)strtoul(strrchr(lh_http_address(h), ':') + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

// Sends a request and returns the whole answer; the caller frees it.
static char *ask(const struct lh_http *h, const char *method, const char *path)
{
    char request[512];
    char *answer = calloc(1, ANSWER);
    int fd = reach(h),
        n = snprintf(request, sizeof request,
                     "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, path);
    size_t got = 0;
    assert_int_equal(write(fd, request, (size_t)n), n);
    for (ssize_t r; got + 1 < ANSWER && (r = read(fd, answer + got, ANSWER - 1 - got)) > 0;)
        got += (size_t)r;
    close(fd);
    return answer;
}

static void assert_answers(const struct lh_http *h, const char *path, const char *code,
                           const char *has)
{
    char *a = ask(h, "GET", path);
    if (strncmp(a, "HTTP/1.1 ", 9) != 0 || strncmp(a + 9, code, 3) != 0 || !strstr(a, has))
        fail_msg("%s: not %s with \"%s\": %s", path, code, has, a);
    free(a);
}

static void publish(struct lh_http *h, const char *status)
{
    lh_http_publish(h, lh_span_str(status));
}

TEST(it_tells_what_was_published)
{
    struct lh_http *h = start("", NULL);
    assert_answers(h, "/metrics", "503", "no status");
    assert_answers(h, "/readyz", "503", "no status");
    assert_answers(h, "/healthz", "200", "ok");
    publish(h, "{\"role\":\"worker\",\"step\":3,\"ready\":false}");
    assert_answers(h, "/readyz", "503", "not ready");
    publish(h, "{\"role\":\"worker\",\"step\":4,\"ready\":true}");
    assert_answers(h, "/readyz", "200", "ok");
    assert_answers(h, "/metrics", "200", "longhaul_steps_total 4\n");
    assert_answers(h, "/metrics", "200", "text/plain; version=0.0.4");
    assert_answers(h, "/status.json", "200", "{\"role\":\"worker\",\"step\":4");
    assert_answers(h, "/history.json", "404", "coordinator");
    assert_answers(h, "/", "404", "/metrics");
    assert_answers(h, "/log", "200", "standard error");
    assert_answers(h, "/../../etc/passwd", "404", "no such page");
    lh_http_stop(h);
}

TEST(it_reads_only)
{
    struct lh_http *h = start("", "<p>the page");
    publish(h, "{\"role\":\"coordinator\",\"credited_tokens\":5}");
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < 4; i++) {
        char *a = ask(h, methods[i], "/");
        assert_non_null(strstr(a, "405"));
        assert_non_null(strstr(a, "Allow: GET, HEAD"));
        free(a);
    }
    assert_answers(h, "/", "200", "<p>the page");
    assert_answers(h, "/", "200", "Content-Security-Policy: default-src 'none'");
    assert_answers(h, "/history.json", "200", "longhaul_run_tokens_total");
    lh_http_stop(h);
}

TEST(the_logs_end_comes_in_whole_lines)
{
    char path[] = "/tmp/longhaul-http-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int i = 0; i < 10000; i++) dprintf(fd, "line %06d\n", i);
    close(fd);
    struct lh_http *h = start(path, NULL);
    char *a = ask(h, "GET", "/log"), *body = strstr(a, "\r\n\r\n");
    assert_non_null(body);
    assert_int_equal(strncmp(body + 4, "line 00", 7), 0);
    assert_non_null(strstr(body, "line 009999\n"));
    assert_true(strlen(body) <= 4 + (64 << 10));
    free(a);
    unlink(path);
    assert_answers(h, "/log", "404", "cannot be read");
    lh_http_stop(h);
}

TEST(silent_peers_keep_nobody_out_for_good)
{
    struct lh_http *h = start("", NULL);
    int silent[LH_HTTP_PEERS];
    publish(h, "{\"role\":\"worker\",\"step\":4,\"ready\":true}");
    for (int i = 0; i < LH_HTTP_PEERS - 1; i++) silent[i] = reach(h);
    assert_answers(h, "/readyz", "200", "ok");
    for (int i = 0; i < LH_HTTP_PEERS - 1; i++) close(silent[i]);
    lh_http_stop(h);
}

// Peers that send their requests byte by byte, for ever, are never silent.
TEST(slow_peers_keep_nobody_out)
{
    struct lh_http *h = start("", NULL);
    const struct timeval patience = {5, 0}; // silent ones would end after 10 s
    enum { SLOW = 2 * LH_HTTP_PEERS };
    int slow[SLOW];
    for (int i = 0; i < SLOW; i++) {
        slow[i] = reach(h);
        assert_int_equal(write(slow[i], "GET / HT", 8), 8);
    }
    for (int i = 0; i < SLOW; i++) {
        char answer[16] = "";
        static const char request[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        int fd = reach(h);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        assert_int_equal(write(fd, request, sizeof request - 1), sizeof request - 1);
        assert_int_equal(recv(fd, answer, 12, MSG_WAITALL), 12);
        assert_string_equal(answer, "HTTP/1.1 200");
        close(fd);
    }
    for (int i = 0; i < SLOW; i++) close(slow[i]);
    lh_http_stop(h);
}

TEST(a_wrong_address_is_named)
{
    struct lh_http *h = start("", NULL), *other;
    static const char *const wrong[] = {
        "", "localhost", ":80", "nowhere.example:80", "127.0.0.1:99999", "fd:1", "fd:900", "fd:"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct lh_http_conf conf = {wrong[i], env, "", NULL, 0};
        assert_int_equal(lh_http_start(&conf, &other), LH_ERR_CONFIG);
        assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "http.listen"));
    }
    lh_http_stop(h);
}

// `longhaul up` passes one socket to each coordinator process that it starts.
TEST(a_socket_that_was_passed_on_outlives_the_server)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int kept = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(kept, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(kept, 8), 0);
    for (int life = 0; life < 3; life++) {
        struct lh_http *h;
        char listen_at[16];
        snprintf(listen_at, sizeof listen_at, "fd:%d", dup(kept));
        struct lh_http_conf conf = {listen_at, env, "", NULL, 0};
        assert_int_equal(lh_http_start(&conf, &h), LH_OK);
        assert_answers(h, "/healthz", "200", "ok");
        lh_http_stop(h);
    }
    close(kept);
}

static int make_env(void **state)
{
    (void)state;
    return lh_env_real_create(&env) ? -1 : 0;
}

static int end_env(void **state)
{
    (void)state;
    lh_env_real_destroy(env);
    return 0;
}

int main(void)
{
    return test_run(make_env, end_env);
}
