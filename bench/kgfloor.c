/*
 * kgfloor: the floor, with which brokers are compared. An epoll server of one thread that reads Kafka frames and at once answers
 * each with constant bytes of the right form. Any cost of a broker above this is the broker's own work, not that of sockets.
 *
 *   kgfloor [port [seconds]]     port 0: a free port; after `seconds` it ends by itself
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAXFD 1100000
static struct { uint8_t *p; uint32_t n, cap; } part[MAXFD];
static uint8_t in[1 << 18], out[1 << 18];

/* ---------------------------------------------------------------- answers, without the correlation id */

#define TAGS "\0"      /* no tagged fields; also ends every response header except that of ApiVersions */
#define NULL_ "\0"
#define NONE "\0\0"    /* error code */
#define ZERO "\0\0\0\0"
#define ONE "\0\0\0\1"
#define LIST(n) n      /* a compact array's length is one more than its entries */
#define ID16 "0123456789abcdef"

static const char heartbeat_v4[] = TAGS ZERO NONE TAGS;
static const char beat_v1[] = TAGS ZERO NONE NULL_ NULL_ ONE "\0\0\x13\x88" "\377" TAGS; /* ConsumerGroupHeartbeat: epoch 1, no assignment */
static const char offsets_v8[] = TAGS ZERO LIST("\1") TAGS; /* OffsetCommit: no topics; OffsetFetch: no groups */
static const char join_v9[] = TAGS ZERO NONE ONE NULL_ "\6range" "\7leader" "\0"
                              "\x33" "kgload-000000-0a1b2c3d-0a1b-4c5d-8e9f-001122334455" LIST("\1") TAGS;
static const char sync_v5[] = TAGS ZERO NONE NULL_ NULL_ "\1" TAGS;
static const char versions_v3[] = NONE LIST("\11")
    "\0\3\0\0\0\14" TAGS "\0\10\0\2\0\10" TAGS "\0\11\0\1\0\10" TAGS "\0\13\0\0\0\11" TAGS
    "\0\14\0\0\0\4" TAGS "\0\15\0\0\0\5" TAGS "\0\16\0\0\0\5" TAGS "\0\22\0\0\0\4" TAGS ZERO TAGS;
static const char metadata_v12[] = TAGS ZERO LIST("\2") ONE "\12" "127.0.0.1" "\0\0\x23\x84" NULL_ TAGS "\21" ID16 ONE
    LIST("\2") NONE "\17" "kgload-topic-0" ID16 "\0"
    LIST("\2") NONE ZERO ONE ZERO LIST("\2") ONE LIST("\2") ONE LIST("\1") TAGS ZERO TAGS TAGS;

static const char produce_v12[] = TAGS LIST("\2") "\17" "kgdata-topic-0" LIST("\2") ZERO NONE ZERO ZERO
    "\377\377\377\377\377\377\377\377" ZERO ZERO LIST("\1") NULL_ TAGS TAGS ZERO TAGS;

/* Fetch: one mebibyte of records, which is in memory once, after the size of the answer and the correlation id. */
#define ZERO16 ZERO ZERO ZERO ZERO
#define RECORDS (1u << 20)
static const char fetch_v17_head[] = TAGS ZERO NONE ZERO LIST("\2") ZERO16 LIST("\2") ZERO NONE
    "\0\0\0\0\0\20\0\0" "\0\0\0\0\0\20\0\0" ZERO ZERO NULL_ "\377\377\377\377" "\201\200\100";
static const char fetch_v17_tail[] = TAGS TAGS TAGS;
#define HEAD (sizeof fetch_v17_head - 1)
#define TAIL (sizeof fetch_v17_tail - 1)
static uint8_t records[8 + HEAD + RECORDS + TAIL];

#define ANSWER_MAX 256
#define IS(name) (*size = sizeof name - 1, name)

static const char *body(int key, size_t *size) {
    switch (key) {
    case 0: return IS(produce_v12);
    case 3: return IS(metadata_v12);
    case 8: case 9: return IS(offsets_v8);
    case 11: return IS(join_v9);
    case 14: return IS(sync_v5);
    case 18: return IS(versions_v3);
    case 68: return IS(beat_v1);
    default: return IS(heartbeat_v4);
    }
}

static size_t answer(uint8_t *w, const uint8_t *f, uint32_t n) {
    size_t size;
    const char *constant = body(n >= 2 ? (f[0] << 8 | f[1]) : -1, &size);
    uint32_t x = htonl(4 + size);
    memcpy(w, &x, 4);
    if (n >= 8) memcpy(w + 4, f + 4, 4);         /* correlation id */
    else memset(w + 4, 0, 4);
    memcpy(w + 8, constant, size);
    return 8 + size;
}

/* ---------------------------------------------------------------- server */

/* Sends everything. If the client reads slowly it waits, since the floor has no other work. */
static bool send_all(int fd, const uint8_t *p, size_t n) {
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN) return false;
        if (k > 0) {
            p += k;
            n -= k;
        } else if (poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 10000) <= 0) return false;
    }
    return true;
}

static bool is_fetch(const uint8_t *f, uint32_t n) { return n >= 8 && !f[0] && f[1] == 1; }

static bool answer_fetch(int fd, const uint8_t *f) {
    memcpy(records + 4, f + 4, 4); /* correlation id */
    return send_all(fd, records, sizeof records);
}

static void make_records(void) {
    uint32_t x = htonl(sizeof records - 4);
    memcpy(records, &x, 4);
    memcpy(records + 8, fetch_v17_head, HEAD);
    memcpy(records + 8 + HEAD + RECORDS, fetch_v17_tail, TAIL);
}

static int listen_on(int port) {
    int one = 1, ls = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    if (bind(ls, (void *)&a, sizeof a) || listen(ls, 4096) || getsockname(ls, (void *)&a, &size)) {
        perror("kgfloor: listen");
        exit(1);
    }
    printf("listening %d\n", ntohs(a.sin_port));
    fflush(stdout);
    return ls;
}

static void accept_all(int ep, int ls) {
    int c, one = 1;
    while ((c = accept4(ls, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (c >= MAXFD) { close(c); continue; }
        setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = c};
        epoll_ctl(ep, EPOLL_CTL_ADD, c, &e);
    }
}

static void serve(int fd) {
    uint8_t *into = in;
    size_t room = sizeof in, before = part[fd].n;
    if (before) { /* append to a frame whose beginning arrived earlier */
        if (part[fd].cap < before + sizeof in) {
            part[fd].cap = (before + sizeof in) * 2;
            part[fd].p = realloc(part[fd].p, part[fd].cap);
        }
        into = part[fd].p + before;
        room = part[fd].cap - before;
    }
    ssize_t n = recv(fd, into, room, 0);
    if (n <= 0) {
        if (n < 0 && errno == EAGAIN) return;
        close(fd);
        free(part[fd].p);
        memset(&part[fd], 0, sizeof part[fd]);
        return;
    }
    const uint8_t *p = into - before;
    size_t left = before + n, o = 0;
    while (left >= 4) {
        uint32_t len;
        memcpy(&len, p, 4);
        len = ntohl(len);
        if (len > 100u << 20 || left - 4 < len) break;
        if (is_fetch(p + 4, len)) {
            if (!send_all(fd, out, o) || !answer_fetch(fd, p + 4)) break;
            o = 0;
        } else o += answer(out + o, p + 4, len);
        p += 4 + len;
        left -= 4 + len;
        if (o > sizeof out - ANSWER_MAX) { if (!send_all(fd, out, o)) break; o = 0; }
    }
    if (left && part[fd].cap < left) {
        uint8_t *grown = malloc(left * 2 + 64);
        memcpy(grown, p, left);
        free(part[fd].p);
        part[fd].p = grown;
        part[fd].cap = left * 2 + 64;
    } else if (left) memmove(part[fd].p, p, left);
    part[fd].n = left;
    send_all(fd, out, o);
}

int main(int argc, char **argv) {
    struct rlimit rl;
    getrlimit(RLIMIT_NOFILE, &rl);
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
    if (argc > 2) alarm(atoi(argv[2]));
    make_records();
    int ls = listen_on(argc > 1 ? atoi(argv[1]) : 19092), ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = ls}, ev[1024];
    epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);
    for (;;) {
        int k = epoll_wait(ep, ev, 1024, -1);
        for (int i = 0; i < k; i++) {
            if (ev[i].data.fd == ls) accept_all(ep, ls);
            else serve(ev[i].data.fd);
        }
    }
}
