// A packet on the boundary's socket: its bytes, and at most one descriptor.
#include "tests/test.h"
#include "worker/external/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct ends {
    int a, b;
};

static struct ends connected(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    return (struct ends){pair[0], pair[1]};
}

static void disconnect(struct ends e)
{
    close(e.a);
    close(e.b);
}

// A read from the pipe returns 0 once no process holds its writing end.
static bool nobody_writes(int reader)
{
    char byte;
    assert_int_equal(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    return read(reader, &byte, 1) == 0;
}

TEST(test_a_descriptor_crosses)
{
    struct ends e = connected();
    int pipe_ends[2], file;
    char bytes[8], byte = 0;
    assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
    assert_true(wk_message_send(e.a, "abc", 3, pipe_ends[1], true));
    close(pipe_ends[1]);
    assert_int_equal(wk_message_receive(e.b, bytes, sizeof bytes, &file), 3);
    assert_memory_equal(bytes, "abc", 3);
    assert_true(file >= 0);
    assert_true(fcntl(file, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(file, "x", 1), 1);
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(file);
    close(pipe_ends[0]);
    disconnect(e);
}

TEST(test_bytes_alone_bring_none)
{
    struct ends e = connected();
    char bytes[8];
    int file = 7;
    assert_int_equal(wk_message_receive(e.b, bytes, sizeof bytes, &file), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(file, -1);
    assert_true(wk_message_send(e.a, "abc", 3, -1, false));
    file = 7;
    assert_int_equal(wk_message_receive(e.b, bytes, sizeof bytes, &file), 3);
    assert_int_equal(file, -1);
    close(e.b);
    assert_false(wk_message_send(e.a, "abc", 3, -1, false)); // must not raise SIGPIPE
    close(e.a);
}

TEST(test_one_of_several_files_is_given_and_none_leaks)
{
    struct ends e = connected();
    int first[2], second[2], file;
    char bytes[8];
    assert_int_equal(pipe2(first, O_CLOEXEC), 0);
    assert_int_equal(pipe2(second, O_CLOEXEC), 0);
    struct iovec io = {bytes, 1};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {.bytes = {0}};
    struct msghdr h = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&h);
    *head = (struct cmsghdr){CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), (int[]){first[1], second[1]}, 2 * sizeof(int));
    assert_int_equal(sendmsg(e.a, &h, MSG_NOSIGNAL), 1);
    close(first[1]);
    close(second[1]);
    assert_int_equal(wk_message_receive(e.b, bytes, sizeof bytes, &file), 1);
    assert_true(file >= 0);
    close(file);
    assert_true(nobody_writes(first[0]));
    assert_true(nobody_writes(second[0]));
    close(first[0]);
    close(second[0]);
    disconnect(e);
}

// A folder whose path is too long for a socket address.
TEST(test_a_socket_in_a_folder_whose_path_is_long)
{
    char root[] = "/tmp/lh_message.XXXXXX", dir[300], path[320];
    assert_non_null(mkdtemp(root));
    snprintf(dir, sizeof dir, "%s/%0200d", root, 0);
    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(path, sizeof path, "%s/s", dir);
    struct sockaddr_un address;
    int folder, listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(wk_message_address(path, &address, &folder));
    assert_true(folder >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    close(folder);
    int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(wk_message_address(path, &address, &folder));
    assert_int_equal(connect(peer, (struct sockaddr *)&address, sizeof address), 0);
    close(folder);
    close(peer);
    close(listener);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_false(wk_message_address(path, &address, &folder)); // the folder no longer exists
    assert_int_equal(errno, ENOENT);
    snprintf(path, sizeof path, "%s/%0120d", root, 0);
    assert_false(wk_message_address(path, &address, &folder));
    assert_int_equal(errno, ENAMETOOLONG);
    assert_true(wk_message_address("s", &address, &folder));
    assert_int_equal(folder, -1);
    assert_string_equal(address.sun_path, "s");
    rmdir(root);
}
