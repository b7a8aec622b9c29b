/*
 * kgdata: load on the topics of a Kafka broker, over the real wire protocol: it produces and fetches record batches.
 *
 * One thread, epoll. It speaks one version of each request: ApiVersions v3, Metadata v12, CreateTopics v5,
 * InitProducerId v4, Produce v12, Fetch v17. It checks every answer: error codes, offsets without gaps, and the checksum of
 * every fetched batch. It counts wrong answers, and fails if there are any.
 *
 * Its duration is bounded: set-up limit, warm-up, the measured seconds and a few more for the last answers.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "batches.h"
#include "blocking.h"
#include "data_requests.h"
#include "histogram.h"
#include "process.h"
#include "wire.h"

/* ---------------------------------------------------------------- options */

enum { W_PRODUCE, W_FETCH, W_LONG_POLL, W_FILL, W_AWAIT, W_N };
static const char *work_name[W_N] = {"produce", "fetch", "long-poll", "fill", "await"};

static struct {
    const char *topic;
    int port, work, conns, depth, topics, parts, records, value_bytes, fill, fetch_bytes, wait_ms;
    double secs, warmup, setup_limit, interval_ms, mb_max, born;
    bool preflight, idempotent, announce, json, vary_client_id;
    int pid;
} o = {.topic = "kgdata-topic", .port = 9092, .conns = 1, .depth = 1, .topics = 1, .parts = 1, .records = 1,
       .fill = 1, .value_bytes = 100, .fetch_bytes = 1 << 20, .wait_ms = 5000, .secs = 5, .warmup = 1, .setup_limit = 60,
       .interval_ms = 5, .preflight = true};

enum { DRAIN_SECONDS = 10, PARTS_MAX = 1000 };

_Noreturn static void die(const char *f, ...) {
    va_list a;
    va_start(a, f);
    fprintf(stderr, "kgdata: ");
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

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static double server_cpu(void) { return o.pid ? process_cpu(o.pid) : 0; }

/* ---------------------------------------------------------------- state, counts and measurements */

typedef struct {
    int64_t begin, end;    /* offsets of the records that `fill` produced before the run */
    int64_t behind, acked; /* by the answers to Produce: the offset after the highest, and the number of records */
} partition;

static struct sockaddr_in addr;
static topic *topics;
static partition *partitions;    /* of the first topic; only `fill` and `await` use more topics */
static buf batch;                /* the batch that every Produce sends */
static enum { PH_WARM, PH_RUN, PH_DRAIN } phase;
static hist H, H_reply;
static uint64_t errors, malformed, measured_bytes;
static double first_answer_s, served_s;

static void wrong(uint64_t *count, const char *f, ...) __attribute__((format(printf, 2, 3)));
static void wrong(uint64_t *count, const char *f, ...) {
    va_list a;
    va_start(a, f);
    if (errors + malformed < 5) {
        fprintf(stderr, "kgdata: ");
        vfprintf(stderr, f, a);
        fprintf(stderr, "\n");
    }
    va_end(a);
    ++*count;
}

/* ---------------------------------------------------------------- connections of the run */

enum { DEPTH_MAX = 5 }; /* Java's limit of max.in.flight.requests.per.connection for idempotent producers */

typedef struct {
    int fd, part, in_flight, next;
    int32_t corr[DEPTH_MAX];
    uint64_t sent[DEPTH_MAX];
    buf frame, in;
    size_t batch_at, sent_n;
    bool sending, want_out;
    int64_t offset;              /* fetching: the next offset; producing: the newest acknowledged offset */
    int64_t producer_id;
    int32_t sequence;
} conn;

static conn *cn;
static int ep;
static int32_t corr_next = 1;

static void rearm(conn *c, bool out) {
    if (c->want_out == out) return;
    c->want_out = out;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.u32 = c - cn};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}

static void continue_sending(conn *c) {
    while (c->sent_n < c->frame.n) {
        ssize_t k = send(c->fd, c->frame.p + c->sent_n, c->frame.n - c->sent_n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EAGAIN) { rearm(c, true); return; }
        if (k < 0) die("a connection failed: %s", strerror(errno));
        c->sent_n += k;
    }
    c->sending = false;
    rearm(c, false);
}

static void send_frame(conn *c) {
    int slot = (c->next + c->in_flight++) % DEPTH_MAX;
    c->corr[slot] = corr_next++;
    set32(c->frame.p + 8, c->corr[slot]);
    c->sent[slot] = now_ns();
    c->sent_n = 0;
    c->sending = true;
    continue_sending(c);
}

static void send_produce(conn *c) {
    if (o.idempotent) {
        batch_number(c->frame.p + c->batch_at, batch.n, c->producer_id, 0, c->sequence);
        c->sequence = (int32_t)(((int64_t)c->sequence + o.records) & 0x7fffffff);
    }
    if (o.vary_client_id) vary_client_id(c->frame.p);
    send_frame(c);
}

static void send_fetch(conn *c, int wait_ms) {
    c->frame.n = 0;
    fetch_begin(&c->frame, 0, wait_ms, 1, 2 * o.fetch_bytes, 1);
    fetch_topic(&c->frame, topics, &(place){c->part, c->offset}, 1, o.fetch_bytes);
    fetch_finish(&c->frame, 0);
    send_frame(c);
}

static void count(conn *c, uint64_t bytes, uint64_t now) {
    if (phase != PH_RUN) return;
    h_add(&H, now - c->sent[c->next]);
    measured_bytes += bytes;
}

static void on_produced(conn *c, rd *r, uint64_t now) {
    partition_answer one;
    if (!produce_read(r, topics, &one, 1) || (one.partition != c->part && o.preflight)) { wrong(&malformed, "a malformed answer to Produce"); return; }
    if (one.error) { wrong(&errors, "Produce: error %d", one.error); return; }
    count(c, batch.n, now);
    if (!o.preflight) return;
    if (one.base_offset < partitions[c->part].end || one.base_offset <= c->offset) wrong(&malformed, "Produce: offset %lld after %lld", (long long)one.base_offset, (long long)c->offset);
    c->offset = one.base_offset;
    partition *p = &partitions[c->part];
    if (one.base_offset + o.records > p->behind) p->behind = one.base_offset + o.records;
    p->acked += o.records;
}

/* Checks a Fetch answer: records of the connection's partition from its offset on. Returns the bytes of whole batches; 0: none, or wrong. */
static int64_t fetched(conn *c, rd *r) {
    partition_answer one;
    int error;
    const char *why;
    if (!fetch_read_one(r, topics, &error, &one) || (!error && one.partition != c->part && o.preflight)) {
        wrong(&malformed, "a malformed answer to Fetch");
        return 0;
    }
    if (error || one.error) { wrong(&errors, "Fetch: error %d", error ? error : one.error); return 0; }
    if (!o.preflight) return one.records_n;
    int64_t bytes = batches_check(one.records, one.records_n, &c->offset, &why);
    if (bytes < 0) wrong(&malformed, "Fetch: %s", why);
    return bytes < 0 ? 0 : bytes;
}

static void on_fetched(conn *c, rd *r, uint64_t now) {
    int64_t bytes = fetched(c, r);
    if (!bytes && !(errors + malformed)) wrong(&malformed, "Fetch: no records though there are some");
    if (!o.preflight) { count(c, bytes, now); return; }
    if (c->offset > partitions[c->part].end) wrong(&malformed, "Fetch: records after the produced ones");
    if (c->offset >= partitions[c->part].end) c->offset = partitions[c->part].begin;
    count(c, bytes, now);
}

static void receive(conn *c) {
    size_t room = 1 << 16;
    if (c->in.n >= 4 && 4 + (size_t)get32(c->in.p) > room) room = 4 + (size_t)get32(c->in.p);
    if (room > ANSWER_MAX) die("an answer of %zu bytes", room);
    need(&c->in, room - c->in.n);
    ssize_t k = recv(c->fd, c->in.p + c->in.n, room - c->in.n, MSG_DONTWAIT);
    if (k < 0 && errno == EAGAIN) return;
    if (k <= 0) die("a connection failed: %s", k ? strerror(errno) : "closed by the broker");
    c->in.n += k;
}

/* Whether a whole answer has arrived; if so, `r` stands after its correlation id. */
static bool answered(const conn *c, rd *r) {
    if (c->in.n < 4 || c->in.n - 4 < get32(c->in.p)) return false;
    *r = (rd){c->in.p + 4, c->in.p + 4 + get32(c->in.p), false};
    int32_t corr = r32(r);
    if (!c->in_flight || c->corr[c->next] != corr) die("an answer with another correlation id");
    return true;
}

static void forget_answer(conn *c) {
    size_t size = 4 + (size_t)get32(c->in.p);
    memmove(c->in.p, c->in.p + size, c->in.n - size);
    c->in.n -= size;
    c->next = (c->next + 1) % DEPTH_MAX;
    c->in_flight--;
}

static void open_connections(int count) {
    cn = calloc(count, sizeof *cn);
    ep = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        cn[i].fd = blocking_connect(&addr);
        cn[i].part = i % o.parts;
        cn[i].offset = -1;
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(ep, EPOLL_CTL_ADD, cn[i].fd, &e)) die("epoll_ctl: %s", strerror(errno));
    }
}

/* ---------------------------------------------------------------- before the run */

static const int api_used[][2] = {{18, 3}, {3, 12}, {19, 5}, {0, 12}, {1, 17}};

static void ask_versions(int fd, buf *q, buf *a) {
    frame_start(q, 18, 3, 1);
    wstr(q, "kgdata"); wstr(q, "1"); w8(q, 0);
    rd r = exchange(fd, q, a);
    int e = r16(&r), offered = 0;
    if (e) die("ApiVersions: error %d", e);
    for (int k = (int)rv(&r) - 1; k > 0 && !r.bad; k--) {
        int key = r16(&r), low = r16(&r), high = r16(&r);
        rtags(&r);
        for (size_t i = 0; i < sizeof api_used / sizeof *api_used; i++)
            offered += api_used[i][0] == key && low <= api_used[i][1] && api_used[i][1] <= high;
    }
    if (offered < (int)(sizeof api_used / sizeof *api_used)) die("the broker does not support the requests of kgdata");
}

static bool passing(int e) { /* errors that a client gets while a partition is not available yet */
    return e == 3 || e == 5 || e == 6 || e == 9 || e == 13 || e == 14 || e == 15 || e == 100 || e == 103;
}

static void pause_or_die(uint64_t t_end, const char *what, int e) {
    if (e != -1 && !passing(e)) die("%s: error %d", what, e);
    if (now_ns() > t_end) die("%s: error %d for %.0f s", what, e, o.setup_limit);
    usleep(10000);
}

static uint64_t setup_end(void) { return now_ns() + (uint64_t)(o.setup_limit * 1e9); }

static void learn_ids(int fd, buf *q, buf *a) {
    for (uint64_t t_end = setup_end();;) {
        metadata(q, topics, o.topics);
        rd r = exchange(fd, q, a);
        int e = metadata_read(&r, topics, o.topics, o.parts);
        if (!e) return;
        pause_or_die(t_end, "Metadata", e);
    }
}

static void filled(partition *p, int64_t base_offset) {
    if (p->begin < 0) p->begin = p->end = base_offset;
    if (p->end != base_offset) die("Produce: offset %lld after %lld", (long long)base_offset, (long long)p->end);
    p->end += o.records;
}

/* Produces one batch to each partition of a topic; repeats this for partitions that are not available yet. */
static void fill_once(int fd, buf *q, buf *a, int t) {
    static partition_answer each[PARTS_MAX];
    static int parts[PARTS_MAX];
    int left = o.parts;
    for (int i = 0; i < left; i++) parts[i] = i;
    for (uint64_t t_end = setup_end(); left;) {
        int e = 0, requested = left;
        produce_build(q, 1, &topics[t], parts, requested, batch.p, batch.n);
        rd r = exchange(fd, q, a);
        if (!produce_read(&r, &topics[t], each, requested)) die("a malformed answer to Produce");
        left = 0;
        for (int i = 0; i < requested; i++) {
            int part = each[i].partition;
            if (part < 0 || part >= o.parts) die("Produce: an answer about a partition that was not requested");
            if (each[i].error) {
                e = each[i].error;
                parts[left++] = part;
            } else if (!t) filled(&partitions[part], each[i].base_offset);
        }
        if (left) pause_or_die(t_end, "Produce", e);
    }
}

static void preflight(void) {
    int fd = blocking_connect(&addr);
    buf q = {0}, a = {0};
    ask_versions(fd, &q, &a);
    create_topics(&q, topics, o.topics, o.parts);
    rd r = exchange(fd, &q, &a);
    int e = create_topics_read(&r);
    if (e) die("CreateTopics: error %d", e);
    learn_ids(fd, &q, &a);
    for (int t = 0; t < o.topics; t++)
        for (int i = 0; i < o.fill; i++) fill_once(fd, &q, &a, t);
    close(fd);
    free(q.p);
    free(a.p);
}

static void number_producers(void) { /* InitProducerId v4 */
    int fd = blocking_connect(&addr);
    buf q = {0}, a = {0};
    uint64_t t_end = setup_end();
    for (int i = 0; i < o.conns;) {
        frame_start(&q, 22, 4, 1);
        wv(&q, 0); w32(&q, 60000); w64(&q, -1); w16(&q, -1); w8(&q, 0);
        rd r = exchange(fd, &q, &a);
        rtags(&r);
        r32(&r);
        int e = r16(&r);
        cn[i].producer_id = r64(&r);
        if (e) pause_or_die(t_end, "InitProducerId", e);
        else i++;
    }
    close(fd);
    free(q.p);
    free(a.p);
}

/* ---------------------------------------------------------------- load without pauses */

static void send_next(conn *c) {
    while (phase != PH_DRAIN && !c->sending && c->in_flight < o.depth) {
        if (o.work == W_PRODUCE) send_produce(c);
        else send_fetch(c, 0);
    }
}

static volatile sig_atomic_t enough;

static void end_early(int number) {
    (void)number;
    enough = 1;
}

static double run_at_full_speed(double *cpu, double *own) {
    signal(SIGTERM, end_early); /* sent by a caller that used this run as load beside its own, and has finished */
    struct epoll_event ev[256];
    uint64_t t_phase = now_ns();
    double secs = 0, cpu0 = 0, own0 = 0;
    for (int i = 0; i < o.conns; i++) {
        conn *c = &cn[i];
        if (o.work == W_PRODUCE) c->batch_at = produce_build(&c->frame, 0, topics, &c->part, 1, batch.p, batch.n);
        else c->offset = partitions[c->part].begin;
        send_next(c);
    }
    for (;;) {
        uint64_t now = now_ns();
        double in_phase = (now - t_phase) / 1e9;
        if (phase == PH_WARM && in_phase >= o.warmup) {
            phase = PH_RUN;
            t_phase = now;
            if (o.announce) { puts("running"); fflush(stdout); }
            cpu0 = server_cpu();
            own0 = own_cpu();
        } else if (phase == PH_RUN && (in_phase >= o.secs || enough || (o.mb_max && measured_bytes >= o.mb_max * 1e6))) {
            secs = in_phase;
            *cpu = server_cpu() - cpu0;
            *own = own_cpu() - own0;
            phase = PH_DRAIN;
            t_phase = now;
        } else if (phase != PH_DRAIN && errors + malformed) { /* one wrong answer ends the run */
            phase = PH_DRAIN;
            t_phase = now;
        }
        if (phase == PH_DRAIN) {
            int waiting = 0;
            for (int i = 0; i < o.conns; i++) waiting += cn[i].in_flight;
            if (!waiting) return secs;
            if (in_phase > DRAIN_SECONDS) die("%d requests were not answered within %d s", waiting, DRAIN_SECONDS);
        }
        int k = epoll_wait(ep, ev, 256, 20);
        for (int i = 0; i < k; i++) {
            conn *c = &cn[ev[i].data.u32];
            if (ev[i].events & EPOLLOUT && c->sending) continue_sending(c);
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                receive(c);
                for (rd r; answered(c, &r); forget_answer(c)) {
                    if (o.work == W_PRODUCE) on_produced(c, &r, now_ns());
                    else on_fetched(c, &r, now_ns());
                }
            }
            send_next(c);
        }
    }
}

/* Checks that the acknowledged records fill the offsets after those of `fill`: no offset twice, none left out. */
static void check_acknowledged(void) {
    for (int i = 0; i < o.parts; i++) {
        partition *p = &partitions[i];
        if (p->acked && p->acked != p->behind - p->end)
            wrong(&malformed, "Produce: %lld records in the offsets %lld to %lld of partition %d", (long long)p->acked,
                  (long long)p->end, (long long)p->behind, i);
    }
}

/* ---------------------------------------------------------------- a fetch that waits */

/* One fetch waits, then a record is produced on another connection. Measures the time until the answer to the fetch, from the
 * sending of the record (H) and from the answer to its producer (H_reply; 0 if the fetch was answered first). */
static double run_long_poll(double *cpu, double *own) {
    enum { FETCHER, PRODUCER };
    conn *c[2] = {&cn[FETCHER], &cn[PRODUCER]};
    struct epoll_event ev[2];
    uint64_t t_begin = now_ns(), t_run = t_begin + (uint64_t)(o.warmup * 1e9), t_end = t_run + (uint64_t)(o.secs * 1e9);
    double cpu0 = server_cpu(), own0 = own_cpu();
    c[FETCHER]->offset = partitions[0].end;
    c[PRODUCER]->batch_at = produce_build(&c[PRODUCER]->frame, 0, topics, &c[PRODUCER]->part, 1, batch.p, batch.n);
    while (now_ns() < t_end) {
        uint64_t came[2] = {0}, sent = 0, due = now_ns() + (uint64_t)(o.interval_ms * 1e6);
        int64_t expected = c[FETCHER]->offset;
        send_fetch(c[FETCHER], o.wait_ms);
        while (!came[FETCHER] || !came[PRODUCER]) {
            uint64_t now = now_ns();
            if (!sent && now >= due) {
                sent = now;
                send_produce(c[PRODUCER]);
            }
            if (now > due + (DRAIN_SECONDS + o.wait_ms / 1000) * 1000000000ull) die("a request was not answered");
            uint64_t wait = sent ? 100000000 : due - now;
            int k = epoll_pwait2(ep, ev, 2, &(struct timespec){0, wait < 100000000 ? wait : 100000000}, NULL);
            for (int i = 0; i < k; i++) {
                int who = ev[i].data.u32;
                receive(c[who]);
                for (rd r; answered(c[who], &r); forget_answer(c[who])) {
                    came[who] = now_ns();
                    if (who == PRODUCER) on_produced(c[who], &r, came[who]);
                    else if (!fetched(c[who], &r)) wrong(&malformed, "Fetch: answered without a record");
                }
            }
        }
        if (errors + malformed) break;
        if (c[FETCHER]->offset != expected + o.records || c[PRODUCER]->offset != expected) wrong(&malformed, "Fetch: not the record that was produced");
        if (came[FETCHER] < sent) wrong(&malformed, "Fetch: answered before there was a record");
        if (errors + malformed) break;
        if (sent < t_run) continue;
        h_add(&H, came[FETCHER] - sent);
        h_add(&H_reply, came[FETCHER] > came[PRODUCER] ? came[FETCHER] - came[PRODUCER] : 0);
        measured_bytes += batch.n;
    }
    *cpu = server_cpu() - cpu0;
    *own = own_cpu() - own0;
    return (now_ns() - t_run) / 1e9;
}

/* ---------------------------------------------------------------- partitions after a start */

static int find_topic(const uint8_t *id) {
    static int last;
    for (int i = 0; i < o.topics; i++, last = (last + 1) % o.topics)
        if (id && !memcmp(topics[last].id, id, 16)) return last;
    die("Fetch: an answer about a topic that was not requested");
}

/* Reads a Fetch answer about many partitions, and marks those whose records it has as `served`. Returns the last error of a
 * partition that is not available yet. */
static int read_served(rd *r, bool *served, int *left) {
    int topics_n, count, waiting = 0, e = fetch_read_head(r, &topics_n);
    if (e) die("Fetch: error %d", e);
    for (; topics_n > 0 && !r->bad; topics_n--) {
        int t = find_topic(fetch_read_topic(r, &count));
        for (; count > 0 && !r->bad; count--) {
            partition_answer one;
            int64_t offset = 0;
            const char *why;
            fetch_read_partition(r, &one);
            if (one.partition < 0 || one.partition >= o.parts) die("Fetch: an answer about a partition that was not requested");
            if (one.error && !passing(one.error)) die("Fetch: error %d", one.error);
            if (one.error) { waiting = one.error; continue; }
            if (batches_check(one.records, one.records_n, &offset, &why) < 0) die("Fetch: %s", why);
            if (offset != (int64_t)o.records * o.fill || one.high_watermark != offset)
                die("Fetch: partition %d of %s has %lld records, %lld up to its high watermark", one.partition, topics[t].name,
                    (long long)offset, (long long)one.high_watermark);
            bool *partition_served = &served[t * o.parts + one.partition];
            *left -= !*partition_served;
            *partition_served = true;
        }
        rtags(r);
    }
    rtags(r);
    if (r->bad || r->p != r->e) die("a malformed answer to Fetch");
    return waiting;
}

static void run_await(void) {
    int fd = blocking_connect(&addr), left = o.topics * o.parts;
    buf q = {0}, a = {0};
    bool *served = calloc(left, 1);
    place *requested = calloc(o.parts, sizeof *requested);
    double born = o.born ? o.born : now_ns() / 1e9;
    ask_versions(fd, &q, &a);
    first_answer_s = now_ns() / 1e9 - born;
    learn_ids(fd, &q, &a);
    for (uint64_t t_end = setup_end(); left;) {
        int with_some = 0;
        for (int t = 0; t < o.topics; t++) with_some += memchr(served + t * o.parts, false, o.parts) != NULL;
        fetch_begin(&q, 1, 0, 1, 50 << 20, with_some);
        for (int t = 0; t < o.topics; t++) {
            int n = 0;
            for (int p = 0; p < o.parts; p++)
                if (!served[t * o.parts + p]) requested[n++] = (place){p, 0};
            if (n) fetch_topic(&q, &topics[t], requested, n, o.fetch_bytes);
        }
        fetch_finish(&q, 0);
        rd r = exchange(fd, &q, &a);
        int e = read_served(&r, served, &left);
        if (left) pause_or_die(t_end, "Fetch", e);
    }
    served_s = now_ns() / 1e9 - born;
    close(fd);
    free(q.p);
    free(a.p);
    free(served);
    free(requested);
}

/* ---------------------------------------------------------------- main */

static void usage(void) {
    puts(
        "kgdata [options]\n"
        "  -p, --port N             broker port on 127.0.0.1 (9092)\n"
        "  -w, --workload WORK      produce     each connection produces one batch a request to its partition\n"
        "                           fetch       each reads its partition from the beginning, again and again; see --fill\n"
        "                           long-poll   one connection fetches and waits, the other produces\n"
        "                           fill        only creates the topics and fills them; see --fill\n"
        "                           await       fetch until every partition returns all batches of --fill\n"
        "  -c, --conns N            connections (1)\n"
        "  -d, --depth N            requests in flight a connection (1; at most 5, and 1 for fetch)\n"
        "  -T, --topics N           topics to fill or await (1; the others use the first)\n"
        "  -P, --parts N            partitions a topic (1); connection n has partition n modulo that\n"
        "  -r, --records N          records in a batch (1)\n"
        "  -b, --value-bytes N      bytes in a record's value (100)\n"
        "      --fill N             batches in each partition before the run (1: until it is there)\n"
        "      --fetch-bytes N      of one partition in a fetch (1048576)\n"
        "      --wait-ms N          how long a long-poll may wait (5000)\n"
        "  -i, --interval-ms MS     how long a long-poll has waited when the record is produced (5)\n"
        "      --idempotent         each connection is an idempotent producer\n"
        "      --vary-client-id     another client id in each Produce, so that no request repeats the one before\n"
        "  -t, --secs S             measured seconds (5)\n"
        "      --mb-max N           the measured part ends after so many MB (no limit)\n"
        "  -W, --warmup S           seconds before measuring (1)\n"
        "      --setup-limit S      give up when a request before the run still fails after S seconds (60)\n"
        "      --born S             await: start of the measured time, in seconds of CLOCK_MONOTONIC\n"
        "      --pid P              server process: report its CPU time and memory\n"
        "      --topic NAME         name prefix (kgdata-topic)\n"
        "      --no-preflight       do not create topics, fill them or check records: for kgfloor\n"
        "      --announce           a line when measuring begins; SIGTERM then ends it early\n"
        "      --json");
    exit(0);
}

static void report(double secs, double cpu, double own) {
    double mb = measured_bytes / 1e6, rss = o.pid ? process_rss_mb(o.pid) : 0, per_cpu = cpu > 0 ? 1 / cpu : 0, per_s = secs > 0 ? 1 / secs : 0;
    unsigned long long n = H.n;
    if (!o.json) {
        printf("requests %llu  rate %.0f/s  %.0f MB/s  generator busy %.0f %%\n", n, n * per_s, mb * per_s, 100 * own * per_s);
        if (cpu > 0) printf("server busy %.0f %%  a second of its CPU: %.0f MB, %.0f requests  memory %.0f MiB\n", 100 * cpu * per_s, mb * per_cpu, n * per_cpu, rss);
        printf("latency p50 %.1f  p99 %.1f  p99.9 %.1f  max %.1f us\n", h_q(&H, .5), h_q(&H, .99), h_q(&H, .999), H.max / 1e3);
        if (H_reply.n) printf("from the producer's answer p50 %.1f  p99 %.1f us\n", h_q(&H_reply, .5), h_q(&H_reply, .99));
        if (served_s > 0) printf("first answer after %.3f s, all partitions served after %.3f s\n", first_answer_s, served_s);
        printf("errors %llu  malformed answers %llu\n", (unsigned long long)errors, (unsigned long long)malformed);
        return;
    }
    printf("{\"secs\":%.3f,\"requests\":%llu,\"rps\":%.0f,\"mb\":%.3f,\"mb_per_s\":%.2f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,"
           "\"max_us\":%.1f,\"reply_p50_us\":%.1f,\"reply_p99_us\":%.1f,\"first_answer_s\":%.4f,\"served_s\":%.4f,"
           "\"errors\":%llu,\"malformed\":%llu,\"gen_util\":%.3f",
           secs, n, n * per_s, mb, mb * per_s, h_q(&H, .5), h_q(&H, .99), h_q(&H, .999), H.max / 1e3, h_q(&H_reply, .5),
           h_q(&H_reply, .99), first_answer_s, served_s, (unsigned long long)errors, (unsigned long long)malformed, own * per_s);
    if (o.pid) printf(",\"srv_util\":%.3f,\"srv_us_per_req\":%.3f,\"mb_per_cpu_s\":%.2f,\"rps_per_cpu_s\":%.0f,\"srv_rss_mb\":%.1f", cpu * per_s,
                      n ? cpu * 1e6 / n : 0, mb * per_cpu, n * per_cpu, rss);
    printf("}\n");
}

static void read_options(int argc, char **argv) {
    enum { L_FILL = 256, L_FB, L_WAIT, L_IDEM, L_MB, L_SL, L_BORN, L_PID, L_TOPIC, L_NP, L_ANN, L_JSON, L_VARY };
    static struct option lo[] = {
        {"port", 1, 0, 'p'}, {"workload", 1, 0, 'w'}, {"conns", 1, 0, 'c'}, {"depth", 1, 0, 'd'}, {"topics", 1, 0, 'T'},
        {"parts", 1, 0, 'P'}, {"records", 1, 0, 'r'}, {"value-bytes", 1, 0, 'b'}, {"interval-ms", 1, 0, 'i'}, {"secs", 1, 0, 't'},
        {"warmup", 1, 0, 'W'}, {"fill", 1, 0, L_FILL}, {"fetch-bytes", 1, 0, L_FB}, {"wait-ms", 1, 0, L_WAIT},
        {"idempotent", 0, 0, L_IDEM}, {"mb-max", 1, 0, L_MB}, {"setup-limit", 1, 0, L_SL}, {"born", 1, 0, L_BORN},
        {"pid", 1, 0, L_PID}, {"topic", 1, 0, L_TOPIC}, {"no-preflight", 0, 0, L_NP}, {"announce", 0, 0, L_ANN}, {"json", 0, 0, L_JSON}, {"vary-client-id", 0, 0, L_VARY}, {"help", 0, 0, 'h'}, {0}};
    int ch;
    while ((ch = getopt_long(argc, argv, "p:w:c:d:T:P:r:b:i:t:W:h", lo, NULL)) != -1) switch (ch) {
        case 'p': o.port = atoi(optarg); break;
        case 'w':
            for (o.work = 0; o.work < W_N && strcmp(optarg, work_name[o.work]); o.work++) {}
            if (o.work == W_N) die("unknown workload '%s'", optarg);
            break;
        case 'c': o.conns = atoi(optarg); break;
        case 'd': o.depth = atoi(optarg); break;
        case 'T': o.topics = atoi(optarg); break;
        case 'P': o.parts = atoi(optarg); break;
        case 'r': o.records = atoi(optarg); break;
        case 'b': o.value_bytes = atoi(optarg); break;
        case 'i': o.interval_ms = atof(optarg); break;
        case 't': o.secs = atof(optarg); break;
        case 'W': o.warmup = atof(optarg); break;
        case L_FILL: o.fill = atoi(optarg); break;
        case L_FB: o.fetch_bytes = atoi(optarg); break;
        case L_WAIT: o.wait_ms = atoi(optarg); break;
        case L_IDEM: o.idempotent = true; break;
        case L_MB: o.mb_max = atof(optarg); break;
        case L_SL: o.setup_limit = atof(optarg); break;
        case L_BORN: o.born = atof(optarg); break;
        case L_PID: o.pid = atoi(optarg); break;
        case L_TOPIC: o.topic = optarg; break;
        case L_NP: o.preflight = false; break;
        case L_ANN: o.announce = true; break;
        case L_JSON: o.json = true; break;
        case L_VARY: o.vary_client_id = true; break;
        default: usage();
    }
    if (o.conns < 1 || o.depth < 1 || o.topics < 1 || o.parts < 1 || o.records < 1 || o.value_bytes < 0) die("counts must be 1 or more");
    if (o.depth > DEPTH_MAX || (o.work == W_FETCH && o.depth > 1)) die("--depth is at most %d, and 1 for fetch", DEPTH_MAX);
    if (o.parts > PARTS_MAX || (int64_t)o.records * (o.value_bytes + 20) > ANSWER_MAX / 2) die("too many partitions, or too large a batch");
    if (strlen(o.topic) > 64) die("name prefix too long");
    if (o.work == W_LONG_POLL) { o.conns = 2; o.parts = 1; }
    if (o.fill < 1) die("--fill is 1 or more");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(o.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    topics = calloc(o.topics, sizeof *topics);
    partitions = calloc(o.parts, sizeof *partitions);
    for (int t = 0; t < o.topics; t++) sprintf(topics[t].name, "%s-%d", o.topic, t);
    for (int i = 0; i < o.parts; i++) partitions[i].begin = -1;
    batch_build(&batch, o.records, o.value_bytes, now_ms());
    double secs = 0, cpu = 0, own = 0;
    if (o.work == W_AWAIT) run_await();
    else if (o.preflight) preflight();
    if (o.work < W_FILL) {
        open_connections(o.conns);
        if (o.idempotent) number_producers();
        secs = o.work == W_LONG_POLL ? run_long_poll(&cpu, &own) : run_at_full_speed(&cpu, &own);
        if (!errors && !malformed) check_acknowledged();
    }
    report(secs, cpu, own);
    return errors + malformed ? 1 : 0;
}
