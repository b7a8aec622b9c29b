/*
 * kgload: load on a Kafka broker, over the real wire protocol; mostly on its group coordinator.
 *
 * One thread, epoll, one request in flight per connection (as Kafka clients do on a coordinator connection) unless
 * --depth says otherwise. It speaks one version of each request: ApiVersions v3, Metadata v12, FindCoordinator v4,
 * CreateTopics v5, JoinGroup v9, SyncGroup v5, Heartbeat v4, OffsetCommit v8, OffsetFetch v8, LeaveGroup v5,
 * ConsumerGroupHeartbeat v1.
 *
 * Its duration is bounded: set-up limit, warm-up and the measured seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "blocking.h"
#include "histogram.h"
#include "process.h"
#include "wire.h"

/* ---------------------------------------------------------------- options */

/* The kinds of work. Each kind but the last is a single request: the OP_ of the same number. */
enum { W_HB, W_COMMIT, W_FETCH, W_VERSIONS, W_METADATA, W_REBALANCE, W_NKIND };
enum { OP_HB, OP_COMMIT, OP_FETCH, OP_VERSIONS, OP_METADATA, OP_JOIN, OP_SYNC, OP_LEAVE, OP_N };
static const char *work_name[W_NKIND] = {"heartbeat", "commit", "fetch", "api_versions", "metadata", "rebalance"};
static const char *op_name[OP_N] = {"heartbeat", "offset_commit", "offset_fetch", "api_versions", "metadata",
                                    "join", "sync", "leave"};

static struct {
    const char *host, *group, *topic, *label;
    int port, conns, members, per_group, depth, topics, parts, sources;
    int sub_bytes, assign_bytes, session_ms, rebalance_ms, create_parts;
    int join_window, connect_window;
    double secs, warmup, setup_limit, interval_ms;
    bool setup, is_static, json, preflight, leave, create_topics, quiet, partial_ok, handshake, vary_client_id, newer;
    int w[W_NKIND];
    int pids[64], npids;
} o = {.host = "127.0.0.1", .group = NULL, .topic = "kgload-topic", .label = "",
       .port = 9092, .conns = 1, .members = 0, .per_group = 1, .depth = 1, .topics = 1,
       .parts = 1, .sources = 0, .sub_bytes = 60, .assign_bytes = 60, .session_ms = 45000,
       .rebalance_ms = 60000, .create_parts = 1, .join_window = 1 << 30,
       .connect_window = 256, .secs = 5, .warmup = 1, .setup_limit = 120, .interval_ms = 0,
       .setup = true, .preflight = true, .w = {1}};

_Noreturn static void die(const char *f, ...) {
    va_list a;
    va_start(a, f);
    fprintf(stderr, "kgload: ");
    vfprintf(stderr, f, a);
    fprintf(stderr, "\n");
    va_end(a);
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* ---------------------------------------------------------------- model */

enum { M_JOIN, M_SYNC, M_STABLE, M_GONE };

typedef struct {
    char id[72];
    int32_t gen;
    int group;
    uint8_t state;
    bool busy, confirmed, is_leader, queued;
    buf assign;      /* leader only: body of the SyncGroup assignments array */
    int next;        /* the next member in the connection's list of due members */
    uint64_t due, sched, last; /* next due time; due time of the queued request; time of the last answer */
    int64_t offset;
} member;

typedef struct {
    int32_t corr;
    int mi;
    int op;
    uint64_t t0;
} flight;

typedef struct {
    int fd;
    bool connected, want_out;
    int cursor, nmem;
    int head, count;       /* ring of requests in flight */
    flight *ring;
    buf in, out;
    size_t out_at;
    int due_head, due_tail;
    uint32_t rr;
} conn;

static member *mem;
static conn *cn;
static int ep;
static int n_stable, n_confirmed, n_connected, n_joining;
static enum { PH_SETUP, PH_WARM, PH_RUN, PH_DRAIN, PH_LEAVE } phase;
/* Members join in waves of one member a connection. Otherwise a JoinGroup that waits for other members of its group could
 * block a JoinGroup of one of them, which follows on the same connection. */
static int wave;
static bool confirming;
static int wave_target(void) { long t = (long)(wave + 1) * o.conns; return t < o.members ? (int)t : o.members; }
static hist H[OP_N], Hall;
static uint64_t errs[OP_N][160], unexpected, conn_errs, rejoins, syncs_completed;
static int32_t corr_next = 1;
static buf sb;
static char protocol_name[] = "range";
static uint64_t total_w;
static uint8_t *sub_meta;
static size_t sub_len;
static uint8_t wheel_kind[256];

static void group_name(char *s, int g) { sprintf(s, "%s-%06d", o.group, g); }
static const char *instance_of(char *s, int mi) {
    if (!o.is_static) return NULL;
    sprintf(s, "inst-%06d", mi);
    return s;
}

static void make_sub(void) { /* a valid ConsumerProtocolSubscription v1, padded by user data */
    buf b = {0};
    w16(&b, 1);
    w32(&b, o.topics);
    for (int t = 0; t < o.topics; t++) {
        char s[128];
        int k = sprintf(s, "%s-%d", o.topic, t);
        w16(&b, k);
        wraw(&b, s, k);
    }
    int pad = o.sub_bytes - (int)b.n - 8;
    if (pad < 0) pad = 0;
    w32(&b, pad);
    while (pad--) w8(&b, 'u');
    w32(&b, 0);
    sub_meta = b.p;
    sub_len = b.n;
}

static void put_assignment(buf *out) {
    buf b = {0};
    w16(&b, 1);
    w32(&b, o.topics);
    for (int t = 0; t < o.topics; t++) {
        char s[128];
        int k = sprintf(s, "%s-%d", o.topic, t);
        w16(&b, k);
        wraw(&b, s, k);
        w32(&b, 1);
        w32(&b, 0);
    }
    int pad = o.assign_bytes - (int)b.n - 4;
    if (pad < 0) pad = 0;
    w32(&b, pad);
    while (pad--) w8(&b, 'a');
    wbytes(out, b.p, b.n);
    free(b.p);
}

static void put_topic_name(buf *b, int t) {
    char s[128];
    sprintf(s, "%s-%d", o.topic, t);
    wstr(b, s);
}

static void build_api_versions(buf *b, int32_t corr) {
    size_t at = frame_start(b, 18, 3, corr);
    wstr(b, "kgload"); wstr(b, "1"); w8(b, 0);
    frame_end(b, at);
}

/* ConsumerGroupHeartbeat: a join says everything, any other heartbeat nothing but the epoch */
static void build_beat(buf *b, member *m, const char *g, const char *inst, int32_t corr, bool joins) {
    size_t at = frame_start(b, 68, 1, corr);
    wstr(b, g); wstr(b, m->id); w32(b, joins ? 0 : m->gen); wnstr(b, inst); wnstr(b, NULL);
    w32(b, joins ? o.rebalance_ms : -1);
    if (joins) {
        wv(b, o.topics + 1);
        for (int t = 0; t < o.topics; t++) put_topic_name(b, t);
    } else wv(b, 0);
    wnstr(b, NULL); wnstr(b, NULL);
    wv(b, joins ? 1 : 0); /* it owns nothing yet */
    w8(b, 0);
    frame_end(b, at);
}

static void build(buf *b, int op, int mi, int32_t corr) {
    member *m = &mem[mi];
    char g[96], is[32];
    group_name(g, m->group);
    const char *inst = instance_of(is, mi);
    size_t at;
    switch (op) {
    case OP_HB:
        if (o.newer) { build_beat(b, m, g, inst, corr, false); return; }
        at = frame_start(b, 12, 4, corr);
        wstr(b, g); w32(b, m->gen); wstr(b, m->id); wnstr(b, inst); w8(b, 0);
        break;
    case OP_COMMIT:
        at = frame_start(b, 8, 8, corr);
        wstr(b, g); w32(b, m->gen); wstr(b, m->id); wnstr(b, inst);
        wv(b, o.topics + 1);
        for (int t = 0; t < o.topics; t++) {
            put_topic_name(b, t);
            wv(b, o.parts + 1);
            for (int p = 0; p < o.parts; p++) {
                w32(b, p); w64(b, m->offset); w32(b, -1); wv(b, 1); w8(b, 0);
            }
            w8(b, 0);
        }
        w8(b, 0);
        m->offset++;
        break;
    case OP_FETCH:
        at = frame_start(b, 9, 8, corr);
        wv(b, 2);
        wstr(b, g);
        wv(b, o.topics + 1);
        for (int t = 0; t < o.topics; t++) {
            put_topic_name(b, t);
            wv(b, o.parts + 1);
            for (int p = 0; p < o.parts; p++) w32(b, p);
            w8(b, 0);
        }
        w8(b, 0);
        w8(b, 0);
        w8(b, 0);
        break;
    case OP_VERSIONS:
        build_api_versions(b, corr);
        return;
    case OP_METADATA:
        at = frame_start(b, 3, 12, corr);
        wv(b, o.topics + 1);
        for (int t = 0; t < o.topics; t++) {
            w64(b, 0); w64(b, 0); /* by name, not by id */
            put_topic_name(b, t);
            w8(b, 0);
        }
        w8(b, 0); w8(b, 0); w8(b, 0);
        break;
    case OP_JOIN:
        if (o.newer) {
            sprintf(m->id, "%s-%08d", o.group, mi);
            build_beat(b, m, g, inst, corr, true);
            return;
        }
        at = frame_start(b, 11, 9, corr);
        wstr(b, g); w32(b, o.session_ms); w32(b, o.rebalance_ms); wstr(b, m->id);
        wnstr(b, inst); wstr(b, "consumer");
        wv(b, 2); wstr(b, protocol_name); wbytes(b, sub_meta, sub_len); w8(b, 0);
        wv(b, 0); w8(b, 0);
        break;
    case OP_SYNC:
        at = frame_start(b, 14, 5, corr);
        wstr(b, g); w32(b, m->gen); wstr(b, m->id); wnstr(b, inst);
        wstr(b, "consumer"); wstr(b, protocol_name);
        if (m->is_leader && m->assign.n) wraw(b, m->assign.p, m->assign.n);
        else wv(b, 1);
        w8(b, 0);
        break;
    case OP_LEAVE:
        if (o.newer) {
            m->gen = inst ? -2 : -1;
            build_beat(b, m, g, inst, corr, false);
            return;
        }
        at = frame_start(b, 13, 5, corr);
        wstr(b, g); wv(b, 2); wstr(b, m->id); wnstr(b, inst); wnstr(b, NULL); w8(b, 0); w8(b, 0);
        break;
    default: return;
    }
    frame_end(b, at);
}

static void rearm(int ci, bool out) {
    conn *c = &cn[ci];
    if (c->want_out == out) return;
    c->want_out = out;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.u32 = ci};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}

static void conn_dead(int ci, const char *why) {
    conn *c = &cn[ci];
    if (c->fd < 0) return;
    if (!o.quiet && conn_errs < 5) fprintf(stderr, "kgload: connection %d: %s\n", ci, why);
    conn_errs++;
    close(c->fd);
    c->fd = -1;
    while (c->count) { /* forget its requests in flight: its members take no further part */
        flight *f = &c->ring[c->head];
        c->head = (c->head + 1) % o.depth;
        c->count--;
        mem[f->mi].busy = false;
        if (mem[f->mi].state == M_JOIN || mem[f->mi].state == M_SYNC) n_joining--;
    }
    if (!o.partial_ok && phase < PH_DRAIN) die("a connection failed (%s); --partial-ok goes on", why);
}

static void flush_out(int ci, const uint8_t *p, size_t n) {
    conn *c = &cn[ci];
    if (c->fd < 0 || !n) return;
    if (c->out.n > c->out_at) { wraw(&c->out, p, n); return; }
    ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (k < 0) {
        if (errno != EAGAIN) { conn_dead(ci, strerror(errno)); return; }
        k = 0;
    }
    if ((size_t)k < n) {
        c->out.n = c->out_at = 0;
        wraw(&c->out, p + k, n - k);
        rearm(ci, true);
    }
}

static void queue_op(int ci, int op, int mi, uint64_t t0) {
    conn *c = &cn[ci];
    member *m = &mem[mi];
    int32_t corr = corr_next++;
    if (corr_next < 0) corr_next = 1;
    flight *f = &c->ring[(c->head + c->count) % o.depth];
    *f = (flight){corr, mi, op, t0};
    c->count++;
    if (o.depth == 1) m->busy = true;
    size_t at = sb.n;
    build(&sb, op, mi, corr);
    if (o.vary_client_id) vary_client_id(sb.p + at);
}

static int pick_op(conn *c, member *m) {
    if (m->state == M_JOIN) return OP_JOIN;
    if (m->state == M_SYNC) return OP_SYNC;
    if (phase == PH_SETUP) return OP_HB;
    if (total_w == 0) return OP_HB;
    return wheel_kind[c->rr++ % total_w];
}

static void set_stable(member *m, bool v) {
    bool was = m->state == M_STABLE;
    if (v && !was) { m->state = M_STABLE; n_stable++; }
    if (!v && was) n_stable--;
    if (!v && m->confirmed) { m->confirmed = false; n_confirmed--; }
}

/* let connection ci send as many requests as it may: collect their frames in sb, and send them in one send() */
static void pump(int ci, uint64_t now) {
    conn *c = &cn[ci];
    if (c->fd < 0 || !c->connected) return;
    sb.n = 0;
    bool paced = o.interval_ms > 0 && phase >= PH_WARM;
    while (c->count < o.depth) {
        int mi = -1;
        uint64_t t0 = now;
        if (phase >= PH_DRAIN) {
            if (phase != PH_LEAVE) break;
            for (int k = 0; k < c->nmem && mi < 0; k++) {
                int j = ci + ((c->cursor + k) % c->nmem) * o.conns;
                if (mem[j].state != M_GONE && !mem[j].busy) mi = j;
            }
            if (mi < 0) break;
            c->cursor++;
            queue_op(ci, OP_LEAVE, mi, t0);
            continue;
        }
        if (phase == PH_SETUP) {
            if (c->count) break;
            for (int k = wave < c->nmem ? wave : c->nmem - 1; k >= 0 && mi < 0; k--) {
                member *m = &mem[ci + k * o.conns];
                if (m->state == M_SYNC || (m->state == M_JOIN && n_joining < o.join_window) ||
                    (m->state == M_STABLE && ((confirming && !m->confirmed) ||
                                              now - m->last > (k == wave ? 200000000ull : o.session_ms * 250000ull))))
                    mi = ci + k * o.conns;
            }
            if (mi < 0) break;
            if (mem[mi].state == M_JOIN) n_joining++;
        } else if (paced) {
            mi = c->due_head;
            if (mi < 0) break;
            c->due_head = mem[mi].next;
            if (c->due_head < 0) c->due_tail = -1;
            mem[mi].queued = false;
            t0 = mem[mi].sched;
        } else {
            int j = ci + (c->cursor % c->nmem) * o.conns;
            c->cursor = (c->cursor + 1) % c->nmem;
            mi = j;
        }
        queue_op(ci, pick_op(c, &mem[mi]), mi, t0);
    }
    if (sb.n) flush_out(ci, sb.p, sb.n);
}

/* ApiVersions v3: returns its error code, or -1 if the list has no entries */
static int read_api_versions(rd *r) {
    int e = r16(r), count = (int)rv(r) - 1;
    for (int k = count; k > 0 && !r->bad; k--) { r16(r); r16(r); r16(r); rtags(r); }
    r32(r);
    rtags(r);
    return e || count > 0 ? e : -1;
}

static void skip_ints(rd *r) {
    for (int k = (int)rv(r) - 1; k > 0 && !r->bad; k--) r32(r);
}

/* Metadata v12: returns the first error code of a topic or partition, or -1 if there is no topic */
static int read_metadata(rd *r) {
    int n, e = 0;
    r32(r);
    for (int k = (int)rv(r) - 1; k > 0 && !r->bad; k--) { r32(r); rbytes(r, &n); r32(r); rbytes(r, &n); rtags(r); }
    rbytes(r, &n);
    r32(r);
    int topics = (int)rv(r) - 1;
    for (int t = topics; t > 0 && !r->bad; t--) {
        int te = r16(r);
        if (te && !e) e = te;
        rbytes(r, &n);
        r64(r); r64(r); r8(r);
        for (int p = (int)rv(r) - 1; p > 0 && !r->bad; p--) {
            int pe = r16(r);
            if (pe && !e) e = pe;
            r32(r); r32(r); r32(r);
            skip_ints(r); skip_ints(r); skip_ints(r);
            rtags(r);
        }
        r32(r);
        rtags(r);
    }
    rtags(r);
    return e || topics > 0 ? e : -1;
}

static void count_err(int op, int e) { errs[op][e < 0 || e > 158 ? 159 : e]++; }

static void must_rejoin(int mi, int e) {
    member *m = &mem[mi];
    set_stable(m, false);
    m->state = M_JOIN;
    if (e == 25 || e == 82) m->id[0] = 0; /* UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID */
    if (phase >= PH_WARM) rejoins++;
}

/* a whole response frame (after the length) for flight f */
static void on_response(int ci, flight f, rd *r, uint64_t now) {
    member *m = &mem[f.mi];
    int e = 0, n;
    const uint8_t *s;
    if (f.op != OP_VERSIONS) rtags(r); /* only the header of an ApiVersions response never has tags */
    m->busy = false;
    m->last = now;
    switch (f.op) {
    case OP_HB:
        r32(r);
        e = r16(r);
        if (o.newer) {
            rbytes(r, &n); rbytes(r, &n);
            int32_t epoch = r32(r);
            if (e) must_rejoin(f.mi, 0);
            else if (epoch != m->gen) { /* it tells the new one before it counts as confirmed */
                m->gen = epoch;
                if (phase >= PH_WARM) rejoins++;
                break;
            }
        }
        if (o.setup && o.depth == 1 && (e == 27 || e == 22 || e == 25)) must_rejoin(f.mi, e);
        else if (e == 0 && phase == PH_SETUP && confirming && !m->confirmed) { m->confirmed = true; n_confirmed++; }
        break;
    case OP_COMMIT:
        r32(r);
        for (int t = (int)rv(r) - 1; t > 0 && !r->bad; t--) {
            rbytes(r, &n);
            for (int p = (int)rv(r) - 1; p > 0 && !r->bad; p--) {
                r32(r);
                int pe = r16(r);
                if (pe && !e) e = pe;
                rtags(r);
            }
            rtags(r);
        }
        if (o.setup && o.depth == 1 && (e == 27 || e == 22 || e == 25)) must_rejoin(f.mi, e);
        break;
    case OP_FETCH:
        r32(r);
        for (int g = (int)rv(r) - 1; g > 0 && !r->bad; g--) {
            rbytes(r, &n);
            for (int t = (int)rv(r) - 1; t > 0 && !r->bad; t--) {
                rbytes(r, &n);
                for (int p = (int)rv(r) - 1; p > 0 && !r->bad; p--) {
                    r32(r); r64(r); r32(r); rbytes(r, &n);
                    int pe = r16(r);
                    if (pe && !e) e = pe;
                    rtags(r);
                }
                rtags(r);
            }
            int ge = r16(r);
            if (ge && !e) e = ge;
            rtags(r);
        }
        break;
    case OP_VERSIONS: e = read_api_versions(r); break;
    case OP_METADATA: e = read_metadata(r); break;
    case OP_JOIN: {
        r32(r);
        e = r16(r);
        if (o.newer) {
            rbytes(r, &n); rbytes(r, &n);
            m->gen = r32(r);
            if (phase == PH_SETUP) n_joining--;
            if (!e) set_stable(m, true);
            break;
        }
        int32_t gen = r32(r);
        rbytes(r, &n);
        rbytes(r, &n);
        int ln;
        const uint8_t *leader = rbytes(r, &ln);
        bool skip = r8(r);
        s = rbytes(r, &n);
        if ((e == 0 || e == 79) && n > 0 && n < (int)sizeof m->id) {
            memcpy(m->id, s, n);
            m->id[n] = 0;
        }
        if (phase == PH_SETUP) n_joining--;
        if (e == 0) {
            m->gen = gen;
            m->state = M_SYNC;
            m->is_leader = ln == n && leader && s && !memcmp(leader, s, n) && !skip;
            m->assign.n = 0;
            if (m->is_leader) {
                int k = (int)rv(r) - 1;
                wv(&m->assign, k + 1);
                for (; k > 0 && !r->bad; k--) {
                    int an;
                    const uint8_t *id = rbytes(r, &an);
                    rbytes(r, &n);
                    rbytes(r, &n);
                    rtags(r);
                    wbytes(&m->assign, id, an < 0 ? 0 : an);
                    put_assignment(&m->assign);
                    w8(&m->assign, 0);
                }
            }
        } else {
            if (e == 25 || e == 82) m->id[0] = 0;
            if (e == 79) e = 0; /* MEMBER_ID_REQUIRED is a normal step of joining */
        }
        break;
    }
    case OP_SYNC:
        r32(r);
        e = r16(r);
        free(m->assign.p);
        m->assign = (buf){0};
        if (e == 0) {
            if (phase >= PH_WARM) syncs_completed++;
            if (o.w[W_REBALANCE] && phase >= PH_WARM) {
                set_stable(m, false);
                m->state = M_JOIN;
            } else set_stable(m, true);
        } else must_rejoin(f.mi, e);
        break;
    case OP_LEAVE:
        r32(r);
        e = r16(r);
        set_stable(m, false);
        m->state = M_GONE;
        break;
    }
    if (r->bad) unexpected++;
    if (phase == PH_RUN) {
        h_add(&H[f.op], now - f.t0);
        h_add(&Hall, now - f.t0);
    }
    if (e && !(e == 27 && o.w[W_REBALANCE]) && (phase == PH_RUN || phase == PH_WARM)) count_err(f.op, e);
    (void)ci;
}

static uint8_t rbuf[1 << 18];

static void on_readable(int ci) {
    conn *c = &cn[ci];
    if (c->fd < 0) return;
    ssize_t k = recv(c->fd, rbuf, sizeof rbuf, MSG_DONTWAIT);
    if (k == 0) { conn_dead(ci, "closed by the broker"); return; }
    if (k < 0) { if (errno != EAGAIN) conn_dead(ci, strerror(errno)); return; }
    uint64_t now = now_ns();
    const uint8_t *p = rbuf;
    size_t n = k;
    if (c->in.n) { wraw(&c->in, rbuf, k); p = c->in.p; n = c->in.n; }
    while (n >= 4) {
        uint32_t len;
        memcpy(&len, p, 4);
        len = ntohl(len);
        if (n - 4 < len) break;
        rd r = {p + 4, p + 4 + len, false};
        int32_t corr = r32(&r);
        if (!c->count || c->ring[c->head].corr != corr) { conn_dead(ci, "correlation id out of order"); return; }
        flight f = c->ring[c->head];
        c->head = (c->head + 1) % o.depth;
        c->count--;
        on_response(ci, f, &r, now);
        p += 4 + len;
        n -= 4 + len;
    }
    if (n) {
        if (p != c->in.p) { memmove((c->in.n = 0, need(&c->in, n), c->in.p), p, n); c->in.n = n; }
    } else if (c->in.p) { free(c->in.p); c->in = (buf){0}; }
    pump(ci, now);
}

/* ---------------------------------------------------------------- connecting */

static struct sockaddr_in addr;

static int open_conn(int ci) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) die("socket: %s (open files limit?)", strerror(errno));
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (o.sources) {
        struct sockaddr_in s = {.sin_family = AF_INET};
        s.sin_addr.s_addr = htonl(0x7f000001u + ci % o.sources);
        setsockopt(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(fd, (void *)&s, sizeof s)) die("bind: %s", strerror(errno));
    }
    if (connect(fd, (void *)&addr, sizeof addr) && errno != EINPROGRESS) die("connect: %s", strerror(errno));
    return fd;
}

static void connect_all(void) {
    int started = 0, pending = 0;
    struct epoll_event ev[512];
    uint64_t t_end = now_ns() + (uint64_t)(o.setup_limit * 1e9);
    while (n_connected < o.conns) {
        while (started < o.conns && pending < o.connect_window) {
            conn *c = &cn[started];
            c->fd = open_conn(started);
            c->want_out = true;
            struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.u32 = started};
            if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e)) die("epoll_ctl: %s", strerror(errno));
            started++;
            pending++;
        }
        int k = epoll_wait(ep, ev, 512, 1000);
        for (int i = 0; i < k; i++) {
            int ci = ev[i].data.u32, err = 0;
            socklen_t el = sizeof err;
            getsockopt(cn[ci].fd, SOL_SOCKET, SO_ERROR, &err, &el);
            if (err) die("connect: %s", strerror(err));
            if ((ev[i].events & EPOLLOUT) && !cn[ci].connected) {
                cn[ci].connected = true;
                n_connected++;
                pending--;
                rearm(ci, false);
            }
        }
        if (now_ns() > t_end) die("connecting took more than %.0f s", o.setup_limit);
    }
}

/* Opens all connections at once, and sends an ApiVersions on each as soon as it is open. Returns the seconds from the first
 * connect() to the last answer; Hall gets the time from the first connect() to each answer. */
static double handshake_all(void) {
    struct epoll_event ev[512];
    buf q = {0};
    build_api_versions(&q, 1);
    int answered = 0;
    uint64_t t0 = now_ns(), now = t0;
    for (int i = 0; i < o.conns; i++) {
        cn[i].fd = open_conn(i);
        cn[i].want_out = true;
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.u32 = i};
        if (epoll_ctl(ep, EPOLL_CTL_ADD, cn[i].fd, &e)) die("epoll_ctl: %s", strerror(errno));
    }
    while (answered < o.conns) {
        int k = epoll_wait(ep, ev, 512, 1000);
        now = now_ns();
        if (now - t0 > o.setup_limit * 1e9) die("handshakes took more than %.0f s: %d of %d answered", o.setup_limit, answered, o.conns);
        for (int i = 0; i < k; i++) {
            conn *c = &cn[ev[i].data.u32];
            if (!c->connected) {
                int err = 0;
                socklen_t el = sizeof err;
                getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &el);
                if (err) die("connect: %s", strerror(err));
                if (!(ev[i].events & EPOLLOUT)) continue;
                c->connected = true;
                rearm(ev[i].data.u32, false);
                if (send(c->fd, q.p, q.n, MSG_NOSIGNAL) != (ssize_t)q.n) die("send: %s", strerror(errno));
                continue;
            }
            need(&c->in, 4096);
            ssize_t n = recv(c->fd, c->in.p + c->in.n, c->in.cap - c->in.n, MSG_DONTWAIT);
            if (n < 0 && errno == EAGAIN) continue;
            if (n <= 0) die("a connection failed before its answer (%s)", n ? strerror(errno) : "closed by the broker");
            c->in.n += n;
            uint32_t len;
            if (c->in.n < 4) continue;
            memcpy(&len, c->in.p, 4);
            len = ntohl(len);
            if (c->in.n < 4 + (size_t)len) continue;
            rd r = {c->in.p + 4, c->in.p + 4 + len, false};
            if (r32(&r) != 1) unexpected++;
            int e = read_api_versions(&r);
            if (e) errs[OP_VERSIONS][e < 0 || e > 158 ? 159 : e]++;
            if (r.bad || c->in.n != 4 + (size_t)len) unexpected++;
            h_add(&H[OP_VERSIONS], now - t0);
            h_add(&Hall, now - t0);
            answered++;
        }
    }
    free(q.p);
    return (now - t0) / 1e9;
}

/* ---------------------------------------------------------------- preflight */

static void preflight(void) {
    int fd = blocking_connect(&addr);
    buf q = {0}, a = {0};
    build_api_versions(&q, 1);
    rd r = exchange(fd, &q, &a);
    int e = r16(&r);
    if (e) die("ApiVersions: error %d", e);
    static const int want[][2] = {{12, 4}, {8, 8}, {9, 8}, {11, 9}, {14, 5}, {13, 5}, {10, 4}};
    enum { WANTED = sizeof want / sizeof *want };
    bool ok[WANTED] = {0};
    for (int k = (int)rv(&r) - 1; k > 0 && !r.bad; k--) {
        int key = r16(&r), lo = r16(&r), hi = r16(&r);
        rtags(&r);
        for (int i = 0; i < WANTED; i++)
            if (want[i][0] == key && lo <= want[i][1] && want[i][1] <= hi) ok[i] = true;
    }
    for (int i = 0; i < WANTED && o.setup; i++)
        if (!ok[i] && !o.quiet) fprintf(stderr, "kgload: note: the broker does not offer api %d v%d\n", want[i][0], want[i][1]);
    if (o.create_topics) {
        frame_start(&q, 19, 5, 2);
        wv(&q, o.topics + 1);
        for (int t = 0; t < o.topics; t++) {
            put_topic_name(&q, t);
            w32(&q, o.create_parts); w16(&q, 1); wv(&q, 1); wv(&q, 1); w8(&q, 0);
        }
        w32(&q, 30000); w8(&q, 0); w8(&q, 0);
        r = exchange(fd, &q, &a);
        rtags(&r); r32(&r);
        for (int k = (int)rv(&r) - 1; k > 0 && !r.bad; k--) {
            int n;
            rbytes(&r, &n);
            e = r16(&r);
            if (e && e != 36) die("CreateTopics: error %d", e);
            break;
        }
    }
    for (int tries = 0; o.setup; tries++) { /* the broker may first have to create __consumer_offsets */
        char g[96];
        group_name(g, 0);
        frame_start(&q, 10, 4, 3);
        w8(&q, 0); wv(&q, 2); wstr(&q, g); w8(&q, 0);
        r = exchange(fd, &q, &a);
        rtags(&r); r32(&r);
        int n;
        e = -1;
        if (rv(&r) == 2) { rbytes(&r, &n); r32(&r); rbytes(&r, &n); r32(&r); e = r16(&r); }
        if (e == 0) break;
        if (tries > 60 || (e != 14 && e != 15 && e != 16)) die("FindCoordinator: error %d", e);
        usleep(500000);
    }
    close(fd);
    free(q.p);
    free(a.p);
}

/* ---------------------------------------------------------------- main */

static void parse_workload(char *s) {
    memset(o.w, 0, sizeof o.w);
    for (char *t = strtok(s, ","); t; t = strtok(NULL, ",")) {
        char *eq = strchr(t, '=');
        int v = eq ? atoi(eq + 1) : 1, i;
        if (eq) *eq = 0;
        for (i = 0; i < W_NKIND; i++)
            if (!strcmp(t, work_name[i]) || (i == 0 && !strcmp(t, "hb"))) { o.w[i] = v; break; }
        if (i == W_NKIND) die("unknown workload '%s'", t);
    }
    int sum = 0;
    for (int i = 0; i < W_REBALANCE; i++) sum += o.w[i];
    if (sum > 256) die("workload weights add up to more than 256");
}

static void usage(void) {
    puts(
        "kgload [options]\n"
        "  -H, --host ADDR          broker address (127.0.0.1)\n"
        "  -p, --port N             broker port (9092)\n"
        "  -c, --conns N            connections (1)\n"
        "  -m, --members N          group members, spread over the connections (= conns)\n"
        "  -M, --per-group N        members in a group (1)\n"
        "      --newer              groups of the consumer protocol (KIP-848), of topics that do not exist; -w heartbeat\n"
        "  -s, --setup KIND         dynamic | static | none: join groups first, or just send (dynamic; none where\n"
        "                           the work needs no group)\n"
        "  -w, --workload LIST      heartbeat=A,commit=B,fetch=C,api_versions=D,metadata=E weights; or rebalance\n"
        "                           (heartbeat)\n"
        "      --handshake          only connect, all at once, with one ApiVersions each; how long until all are answered\n"
        "  -T, --topics N           topics in a commit, fetch or metadata request (1)\n"
        "  -P, --parts N            partitions a topic in a commit or fetch (1)\n"
        "  -t, --secs S             measured seconds (5)\n"
        "  -W, --warmup S           seconds before measuring (1)\n"
        "  -d, --depth N            requests in flight a connection (1, as Kafka clients do; above 1 a\n"
        "                           member that is told to rejoin is only counted as an error)\n"
        "  -i, --interval-ms MS     each member sends every MS ms; latency counts from the due time\n"
        "                           (0: as fast as answers come)\n"
        "      --sources N          bind to 127.0.0.1 .. 127.0.0.N in turn (over 28,000 connections)\n"
        "      --pid P[,P...]       server processes: report their CPU time per request and memory\n"
        "      --create-topics N    create the topics first, N partitions each\n"
        "      --topic NAME, --group NAME   name prefixes (kgload-topic; a new group name each run)\n"
        "      --sub-bytes N, --assign-bytes N   subscription and assignment sizes (60, 60)\n"
        "      --session-ms N, --rebalance-ms N  timeouts in JoinGroup (45000, 60000)\n"
        "      --vary-client-id     another client id in each request, so that no request repeats the one before\n"
        "      --join-window N      JoinGroups in flight at most during set-up\n"
        "      --setup-limit S      give up when set-up takes longer (120)\n"
        "      --no-preflight       skip ApiVersions, CreateTopics and FindCoordinator\n"
        "      --partial-ok         go on when a connection is lost\n"
        "      --leave              leave the groups at the end\n"
        "      --label TEXT, --json, --quiet");
    exit(0);
}

static double srv_cpu(void) {
    double t = 0;
    for (int i = 0; i < o.npids; i++) t += process_cpu(o.pids[i]);
    return t;
}

static double srv_rss_mb(void) {
    double t = 0;
    for (int i = 0; i < o.npids; i++) t += process_rss_mb(o.pids[i]);
    return t;
}

static uint64_t errors_sum(void) {
    uint64_t n = 0;
    for (int i = 0; i < OP_N; i++)
        for (int e = 0; e < 160; e++) n += errs[i][e];
    return n;
}

static void report(double secs, double scpu, double gcpu, double rss, double setup_s) {
    uint64_t ne = errors_sum();
    if (o.json) {
        printf("{\"label\":\"%s\",\"conns\":%d,\"members\":%d,\"groups\":%d,\"depth\":%d,\"secs\":%.3f,"
               "\"setup_s\":%.3f,\"requests\":%llu,\"rps\":%.0f,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,"
               "\"p999_us\":%.1f,\"max_us\":%.1f,\"mean_us\":%.1f,\"errors\":%llu,\"lost_conns\":%llu,"
               "\"malformed\":%llu,\"rejoins\":%llu,\"syncs_completed\":%llu,\"gen_util\":%.3f",
               o.label, o.conns, o.members, (o.members + o.per_group - 1) / o.per_group, o.depth, secs, setup_s,
               (unsigned long long)Hall.n, Hall.n / secs, h_q(&Hall, .5), h_q(&Hall, .9), h_q(&Hall, .99),
               h_q(&Hall, .999), Hall.max / 1e3, Hall.n ? Hall.sum / 1e3 / Hall.n : 0, (unsigned long long)ne,
               (unsigned long long)conn_errs, (unsigned long long)unexpected, (unsigned long long)rejoins,
               (unsigned long long)syncs_completed, gcpu / secs);
        if (o.npids) printf(",\"srv_util\":%.3f,\"srv_us_per_req\":%.3f,\"srv_rss_mb\":%.1f", scpu / secs,
                            Hall.n ? scpu * 1e6 / Hall.n : 0, rss);
        for (int i = 0; i < OP_N; i++)
            if (H[i].n) printf(",\"%s\":{\"n\":%llu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f}", op_name[i],
                               (unsigned long long)H[i].n, h_q(&H[i], .5), h_q(&H[i], .99), h_q(&H[i], .999), H[i].max / 1e3);
        printf("}\n");
        return;
    }
    printf("%s%sconnections %d  members %d  groups %d  depth %d  set-up %.2f s  measured %.2f s\n", o.label,
           *o.label ? ": " : "", o.conns, o.members, (o.members + o.per_group - 1) / o.per_group, o.depth, setup_s, secs);
    printf("requests %llu  rate %.0f/s  generator busy %.0f %%\n", (unsigned long long)Hall.n, Hall.n / secs, 100 * gcpu / secs);
    if (o.npids)
        printf("server busy %.0f %%  %.2f us of CPU a request  memory %.0f MiB\n", 100 * scpu / secs,
               Hall.n ? scpu * 1e6 / Hall.n : 0, rss);
    printf("%-14s %10s %9s %9s %9s %9s   (us)\n", "latency", "n", "p50", "p99", "p99.9", "max");
    for (int i = 0; i < OP_N; i++)
        if (H[i].n) printf("%-14s %10llu %9.1f %9.1f %9.1f %9.1f\n", op_name[i], (unsigned long long)H[i].n, h_q(&H[i], .5),
                           h_q(&H[i], .99), h_q(&H[i], .999), H[i].max / 1e3);
    printf("errors %llu  lost connections %llu  malformed answers %llu  rejoins %llu  completed syncs %llu\n", (unsigned long long)ne,
           (unsigned long long)conn_errs, (unsigned long long)unexpected, (unsigned long long)rejoins,
           (unsigned long long)syncs_completed);
    for (int i = 0; i < OP_N; i++)
        for (int e = 0; e < 160; e++)
            if (errs[i][e]) printf("  %s error %d: %llu\n", op_name[i], e, (unsigned long long)errs[i][e]);
}

static int failed(void) { return errors_sum() || conn_errs || unexpected; }

int main(int argc, char **argv) {
    enum { L_SOURCES = 256, L_PID, L_CT, L_TOPIC, L_GROUP, L_SUB, L_ASG, L_SESS, L_REB, L_JW, L_SL, L_NP, L_PO, L_LEAVE, L_LABEL, L_JSON, L_QUIET, L_HAND, L_VARY, L_NEWER };
    static struct option lo[] = {
        {"host", 1, 0, 'H'}, {"port", 1, 0, 'p'}, {"conns", 1, 0, 'c'}, {"members", 1, 0, 'm'}, {"per-group", 1, 0, 'M'},
        {"setup", 1, 0, 's'}, {"workload", 1, 0, 'w'}, {"topics", 1, 0, 'T'}, {"parts", 1, 0, 'P'}, {"secs", 1, 0, 't'},
        {"warmup", 1, 0, 'W'}, {"depth", 1, 0, 'd'}, {"interval-ms", 1, 0, 'i'}, {"sources", 1, 0, L_SOURCES},
        {"pid", 1, 0, L_PID}, {"create-topics", 1, 0, L_CT}, {"topic", 1, 0, L_TOPIC}, {"group", 1, 0, L_GROUP},
        {"sub-bytes", 1, 0, L_SUB}, {"assign-bytes", 1, 0, L_ASG}, {"session-ms", 1, 0, L_SESS}, {"rebalance-ms", 1, 0, L_REB},
        {"join-window", 1, 0, L_JW}, {"setup-limit", 1, 0, L_SL}, {"no-preflight", 0, 0, L_NP}, {"partial-ok", 0, 0, L_PO},
        {"leave", 0, 0, L_LEAVE}, {"label", 1, 0, L_LABEL}, {"json", 0, 0, L_JSON}, {"quiet", 0, 0, L_QUIET},
        {"handshake", 0, 0, L_HAND}, {"vary-client-id", 0, 0, L_VARY}, {"newer", 0, 0, L_NEWER},
        {"help", 0, 0, 'h'}, {0}};
    int ch;
    while ((ch = getopt_long(argc, argv, "H:p:c:m:M:s:w:T:P:t:W:d:i:h", lo, NULL)) != -1) switch (ch) {
        case 'H': o.host = optarg; break;
        case 'p': o.port = atoi(optarg); break;
        case 'c': o.conns = atoi(optarg); break;
        case 'm': o.members = atoi(optarg); break;
        case 'M': o.per_group = atoi(optarg); break;
        case 's':
            if (!strcmp(optarg, "none")) o.setup = false;
            else if (!strcmp(optarg, "static")) o.is_static = true;
            else if (strcmp(optarg, "dynamic")) die("unknown set-up '%s'", optarg);
            break;
        case 'w': parse_workload(optarg); break;
        case 'T': o.topics = atoi(optarg); break;
        case 'P': o.parts = atoi(optarg); break;
        case 't': o.secs = atof(optarg); break;
        case 'W': o.warmup = atof(optarg); break;
        case 'd': o.depth = atoi(optarg); break;
        case 'i': o.interval_ms = atof(optarg); break;
        case L_SOURCES: o.sources = atoi(optarg); break;
        case L_PID: for (char *t = strtok(optarg, ","); t && o.npids < 64; t = strtok(NULL, ",")) o.pids[o.npids++] = atoi(t); break;
        case L_CT: o.create_topics = true; o.create_parts = atoi(optarg); break;
        case L_TOPIC: o.topic = optarg; break;
        case L_GROUP: o.group = optarg; break;
        case L_SUB: o.sub_bytes = atoi(optarg); break;
        case L_ASG: o.assign_bytes = atoi(optarg); break;
        case L_SESS: o.session_ms = atoi(optarg); break;
        case L_REB: o.rebalance_ms = atoi(optarg); break;
        case L_JW: o.join_window = atoi(optarg); break;
        case L_SL: o.setup_limit = atof(optarg); break;
        case L_NP: o.preflight = false; break;
        case L_PO: o.partial_ok = true; break;
        case L_LEAVE: o.leave = true; break;
        case L_LABEL: o.label = optarg; break;
        case L_JSON: o.json = true; break;
        case L_QUIET: o.quiet = true; break;
        case L_HAND: o.handshake = true; break;
        case L_VARY: o.vary_client_id = true; break;
        case L_NEWER: o.newer = true; break;
        default: usage();
    }
    if (o.conns < 1 || o.depth < 1 || o.per_group < 1 || o.topics < 1 || o.parts < 1) die("counts must be 1 or more");
    if ((o.group && strlen(o.group) > 64) || strlen(o.topic) > 64) die("name prefix too long");
    if (!o.members) o.members = o.conns;
    static char run_group[64];
    if (!o.group) { /* new names in each run: members left over from an earlier run would delay a rebalance */
        sprintf(run_group, "kgload-%05x", (unsigned)(now_ns() / 1000) & 0xfffff);
        o.group = run_group;
    }
    if (o.members < o.conns) die("more connections than members");
    if (o.setup && o.members > o.conns && o.conns % o.per_group) die("with several members a connection, --conns must be a multiple of --per-group");
    if (o.newer && (o.w[W_COMMIT] || o.w[W_FETCH] || o.w[W_REBALANCE])) die("--newer has heartbeats only");
    if (o.depth > 1 && o.w[W_REBALANCE]) die("rebalance needs --depth 1");
    if (!o.w[W_HB] && !o.w[W_COMMIT] && !o.w[W_FETCH] && !o.w[W_REBALANCE]) o.setup = false;
    total_w = 0;
    for (int left = 1, i = 0, used[W_REBALANCE] = {0}; left;) { /* interleave the kinds of work */
        left = 0;
        for (i = 0; i < W_REBALANCE; i++)
            if (used[i] < o.w[i] && total_w < 256) { wheel_kind[total_w++] = i; used[i]++; left = 1; }
    }
    struct rlimit rl;
    getrlimit(RLIMIT_NOFILE, &rl);
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
    if (rl.rlim_cur < (rlim_t)o.conns + 16) die("open files limit %lu is too low for %d connections", (unsigned long)rl.rlim_cur, o.conns);

    struct addrinfo hint = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *ai;
    if (getaddrinfo(o.host, NULL, &hint, &ai)) die("cannot resolve %s", o.host);
    addr = *(struct sockaddr_in *)ai->ai_addr;
    addr.sin_port = htons(o.port);
    if ((ntohl(addr.sin_addr.s_addr) >> 24) != 127) fprintf(stderr, "kgload: note: %s is not a loopback address\n", o.host);
    if (o.preflight && !o.handshake) preflight();
    make_sub();
    mem = calloc(o.members, sizeof *mem);
    cn = calloc(o.conns, sizeof *cn);
    if (!mem || !cn) die("out of memory");
    for (int i = 0; i < o.members; i++) {
        mem[i].group = i / o.per_group;
        mem[i].next = -1;
        mem[i].offset = 1000;
        if (!o.setup) {
            mem[i].state = o.w[W_REBALANCE] ? M_JOIN : M_STABLE;
            mem[i].gen = 1;
            sprintf(mem[i].id, "kgload-%06d-0a1b2c3d-0a1b-4c5d-8e9f-001122334455", i);
        }
    }
    ep = epoll_create1(0);
    for (int i = 0; i < o.conns; i++) {
        cn[i].fd = -1;
        cn[i].nmem = (o.members - i + o.conns - 1) / o.conns;
        cn[i].ring = calloc(o.depth, sizeof(flight));
        cn[i].due_head = cn[i].due_tail = -1;
        cn[i].rr = i;
    }
    if (o.handshake) {
        double cpu = srv_cpu(), own = own_cpu(), secs = handshake_all();
        report(secs, srv_cpu() - cpu, own_cpu() - own, srv_rss_mb(), secs);
        return failed();
    }
    connect_all();

    uint64_t t_begin = now_ns(), t_phase = t_begin, now = t_begin;
    uint64_t iv = (uint64_t)(o.interval_ms * 1e6);
    phase = o.setup ? PH_SETUP : PH_WARM;
    double setup_s = 0, cpu0 = 0, own0 = 0, cpu1 = 0, own1 = 0, meas = 0;
    int *fifo = NULL, fifo_at = 0; /* members in order of due time: all intervals are equal */
    struct epoll_event ev[1024];
    bool kick = true;
    uint64_t last_kick = 0;
    for (;;) {
        now = now_ns();
        if (phase == PH_SETUP) {
            int target = wave_target(), below = wave * o.conns;
            if (n_stable < target) confirming = false;
            else if (!confirming) { /* every member must heartbeat once in a stable group */
                confirming = true;
                for (int i = below; i < target; i++) mem[i].confirmed = false;
                n_confirmed = 0;
                for (int i = 0; i < below; i++) n_confirmed += mem[i].confirmed;
                kick = true;
            } else if (n_confirmed == target) {
                confirming = false;
                kick = true;
                if (target < o.members) wave++;
                else {
                    phase = PH_WARM;
                    setup_s = (now - t_begin) / 1e9;
                    if (o.w[W_REBALANCE])
                        for (int i = 0; i < o.members; i++) { set_stable(&mem[i], false); mem[i].state = M_JOIN; }
                    t_phase = now;
                }
            }
        }
        if (phase == PH_SETUP && (now - t_begin) / 1e9 > o.setup_limit)
            die("set-up took more than %.0f s: %d of %d members stable", o.setup_limit, n_stable, o.members);
        if (phase == PH_WARM && iv && !fifo) {
            fifo = malloc(o.members * sizeof *fifo);
            for (int i = 0; i < o.members; i++) { fifo[i] = i; mem[i].due = now + (uint64_t)((double)iv * i / o.members); }
        }
        if (phase == PH_WARM && now - t_phase >= o.warmup * 1e9) {
            phase = PH_RUN;
            t_phase = now;
            cpu0 = srv_cpu();
            own0 = own_cpu();
            memset(errs, 0, sizeof errs);
            rejoins = syncs_completed = 0;
        } else if (phase == PH_RUN && now - t_phase >= o.secs * 1e9) {
            meas = (now - t_phase) / 1e9;
            cpu1 = srv_cpu();
            own1 = own_cpu();
            phase = PH_DRAIN;
            t_phase = now;
        } else if (phase == PH_DRAIN) {
            int busy = 0;
            for (int i = 0; i < o.conns; i++) busy += cn[i].fd >= 0 && cn[i].count;
            if (!busy || now - t_phase > 2e9) {
                if (!o.leave) break;
                phase = PH_LEAVE;
                t_phase = now;
                kick = true;
            }
        } else if (phase == PH_LEAVE) {
            int left = 0;
            for (int i = 0; i < o.members; i++) left += mem[i].state != M_GONE;
            if (!left || now - t_phase > 10e9) break;
        }
        int timeout = phase == PH_SETUP || phase >= PH_DRAIN ? 20 : 50;
        struct timespec ts = {0, timeout * 1000000l};
        if (iv && (phase == PH_WARM || phase == PH_RUN)) {
            for (;;) {
                int mi = fifo[fifo_at];
                member *m = &mem[mi];
                if (m->due > now) {
                    uint64_t d = m->due - now;
                    if (d < (uint64_t)ts.tv_nsec) ts.tv_nsec = d;
                    break;
                }
                if (m->queued || m->busy) { /* its previous request is still unanswered: skip this one, as the latency of the previous shows the delay */
                    m->due += iv;
                } else {
                    int ci = mi % o.conns;
                    conn *c = &cn[ci];
                    m->queued = true;
                    m->sched = m->due;
                    m->next = -1;
                    if (c->due_tail >= 0) mem[c->due_tail].next = mi;
                    else c->due_head = mi;
                    c->due_tail = mi;
                    if (c->count < o.depth) pump(ci, now);
                    m->due += iv;
                }
                fifo_at = (fifo_at + 1) % o.members;
            }
        } else if (kick || (phase == PH_SETUP && now - last_kick > 20000000ull) || phase == PH_LEAVE) {
            kick = false;
            last_kick = now;
            for (int i = 0; i < o.conns; i++) if (!cn[i].count) pump(i, now);
        }
        int k = epoll_pwait2(ep, ev, 1024, &ts, NULL);
        for (int i = 0; i < k; i++) {
            int ci = ev[i].data.u32;
            conn *c = &cn[ci];
            if (c->fd < 0) continue;
            if (ev[i].events & EPOLLOUT && c->out.n > c->out_at) {
                ssize_t w = send(c->fd, c->out.p + c->out_at, c->out.n - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (w > 0) c->out_at += w;
                if (c->out_at == c->out.n) { c->out.n = c->out_at = 0; rearm(ci, false); }
            }
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(ci);
        }
    }
    report(meas, cpu1 - cpu0, own1 - own0, srv_rss_mb(), setup_s);
    return failed();
}
