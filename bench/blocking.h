/*
 * Requests that wait for their answers, on a blocking socket: for the set-up before a run, which is not measured.
 */
#pragma once
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "wire.h"

enum { ANSWER_MAX = 64 << 20, ANSWER_SECONDS = 60 };

static int blocking_connect(const struct sockaddr_in *to) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (const void *)to, sizeof *to)) die("connect: %s", strerror(errno));
    struct timeval limit = {ANSWER_SECONDS, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void receive_exactly(int fd, uint8_t *p, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t k = recv(fd, p + at, n - at, 0);
        if (k == 0) die("before the run: the broker closed the connection");
        if (k < 0) die("before the run: no answer (%s)", strerror(errno));
        at += k;
    }
}

/* Sends the frame in `q`, empties `q`, and waits for the answer. Returns a reader that stands after the correlation id. */
static rd exchange(int fd, buf *q, buf *a) {
    frame_end(q, 0);
    for (size_t at = 0; at < q->n;) {
        ssize_t k = send(fd, q->p + at, q->n - at, MSG_NOSIGNAL);
        if (k <= 0) die("before the run: send: %s", strerror(errno));
        at += k;
    }
    uint8_t head[4];
    receive_exactly(fd, head, 4);
    uint32_t size;
    memcpy(&size, head, 4);
    size = ntohl(size);
    if (size < 4 || size > ANSWER_MAX) die("before the run: an answer of %u bytes", size);
    a->n = 0;
    need(a, size);
    receive_exactly(fd, a->p, size);
    a->n = size;
    if (memcmp(a->p, q->p + 8, 4)) die("before the run: an answer with another correlation id");
    q->n = 0;
    return (rd){a->p + 4, a->p + size, false};
}
