/*
 * Produce v12 (the newest version without topic ids) and Fetch v17 (which Java consumers send), for one or several partitions
 * of one topic a request; and readers of their answers, which must be about the requested topic and partitions.
 */
#pragma once
#include <stdio.h>

#include "wire.h"

typedef struct {
    char name[80];
    uint8_t id[16];
} topic;

/* An answer about one partition; `records` points into the bytes of the answer. */
typedef struct {
    int partition, error;
    int64_t base_offset;                /* Produce */
    int64_t high_watermark, log_start;  /* high_watermark: Fetch; log_start: both */
    const uint8_t *records;
    int records_n;
} partition_answer;

/* ---------------------------------------------------------------- Produce */

/* A request with the same batch for each of these partitions. Returns where in `b` the first copy of the batch begins. */
static size_t produce_build(buf *b, int32_t corr, const topic *t, const int *parts, int count, const uint8_t *batch, size_t batch_n) {
    size_t at = frame_start(b, 0, 12, corr), found = 0;
    wv(b, 0); /* no transaction */
    w16(b, 1); /* acks */
    w32(b, 30000);
    wv(b, 2);
    wstr(b, t->name);
    wv(b, count + 1);
    for (int i = 0; i < count; i++) {
        w32(b, parts[i]);
        wv(b, batch_n + 1);
        if (!i) found = b->n;
        wraw(b, batch, batch_n);
        w8(b, 0);
    }
    w8(b, 0);
    w8(b, 0);
    frame_end(b, at);
    return found;
}

static bool names(rd *r, const topic *t) {
    int n;
    const uint8_t *name = rbytes(r, &n);
    return name && n == (int)strlen(t->name) && !memcmp(name, t->name, n);
}

/* Reads an answer after its correlation id; false if it is malformed, or about another topic or number of partitions. */
static bool produce_read(rd *r, const topic *t, partition_answer *each, int count) {
    int n;
    rtags(r);
    if (rv(r) != 2 || !names(r, t) || (int)rv(r) - 1 != count) return false;
    for (int i = 0; i < count; i++) {
        each[i] = (partition_answer){.partition = r32(r), .error = r16(r), .base_offset = r64(r)};
        r64(r); /* append time */
        each[i].log_start = r64(r);
        for (int k = (int)rv(r) - 1; k > 0 && !r->bad; k--) { r32(r); rbytes(r, &n); rtags(r); }
        rbytes(r, &n);
        rtags(r);
    }
    rtags(r);
    r32(r); /* throttle time */
    rtags(r);
    return !r->bad && r->p == r->e;
}

/* ---------------------------------------------------------------- Fetch */

typedef struct {
    int partition;
    int64_t offset;
} place;

static void fetch_begin(buf *b, int32_t corr, int wait_ms, int min_bytes, int max_bytes, int topics) {
    frame_start(b, 1, 17, corr);
    w32(b, wait_ms);
    w32(b, min_bytes);
    w32(b, max_bytes);
    w8(b, 0); /* read uncommitted */
    w32(b, 0);
    w32(b, -1); /* no session */
    wv(b, topics + 1);
}

static void fetch_topic(buf *b, const topic *t, const place *places, int count, int partition_bytes) {
    wraw(b, t->id, 16);
    wv(b, count + 1);
    for (int i = 0; i < count; i++) {
        w32(b, places[i].partition);
        w32(b, -1); /* current leader epoch: not checked */
        w64(b, places[i].offset);
        w32(b, -1);
        w64(b, -1);
        w32(b, partition_bytes);
        w8(b, 0);
    }
    w8(b, 0);
}

static void fetch_finish(buf *b, size_t at) {
    wv(b, 1);
    wv(b, 1); /* no rack */
    w8(b, 0);
    frame_end(b, at);
}

/* Reads the head of the answer; returns its error code, and in `*topics` the number of topics that follow. */
static int fetch_read_head(rd *r, int *topics) {
    rtags(r);
    r32(r); /* throttle time */
    int error = r16(r);
    r32(r); /* session */
    *topics = (int)rv(r) - 1;
    return error;
}

/* Reads the head of a topic; returns its id, and in `*count` the number of partitions that follow. */
static const uint8_t *fetch_read_topic(rd *r, int *count) {
    const uint8_t *id = have(r, 16) ? r->p : NULL;
    if (id) r->p += 16;
    *count = (int)rv(r) - 1;
    return id;
}

static void fetch_read_partition(rd *r, partition_answer *one) {
    *one = (partition_answer){.partition = r32(r), .error = r16(r), .high_watermark = r64(r)};
    r64(r); /* last stable offset */
    one->log_start = r64(r);
    for (int k = (int)rv(r) - 1; k > 0 && !r->bad; k--) { r64(r); r64(r); rtags(r); } /* aborted transactions */
    r32(r); /* preferred replica */
    one->records = rbytes(r, &one->records_n);
    if (one->records_n < 0) one->records_n = 0;
    rtags(r);
}

/* Reads a whole answer about one partition of `t`; false if it is malformed, or about another topic or several partitions. */
static bool fetch_read_one(rd *r, const topic *t, int *error, partition_answer *one) {
    int topics, count;
    *error = fetch_read_head(r, &topics);
    if (*error) return !r->bad;
    const uint8_t *id = topics == 1 ? fetch_read_topic(r, &count) : NULL;
    if (!id || memcmp(id, t->id, 16) || count != 1) return false;
    fetch_read_partition(r, one);
    rtags(r);
    rtags(r);
    return !r->bad && r->p == r->e;
}

/* ---------------------------------------------------------------- before the run */

static int create_topics(buf *b, const topic *topics, int count, int partitions) { /* CreateTopics v5 */
    size_t at = frame_start(b, 19, 5, 1);
    wv(b, count + 1);
    for (int t = 0; t < count; t++) {
        wstr(b, topics[t].name);
        w32(b, partitions); w16(b, 1); wv(b, 1); wv(b, 1); w8(b, 0);
    }
    w32(b, 60000); w8(b, 0); w8(b, 0);
    frame_end(b, at);
    return at;
}

static int create_topics_read(rd *r) { /* returns the first error; TOPIC_ALREADY_EXISTS is no error */
    int n;
    rtags(r);
    r32(r);
    for (int k = (int)rv(r) - 1; k > 0 && !r->bad; k--) {
        rbytes(r, &n);
        int e = r16(r);
        if (e && e != 36) return e;
        rbytes(r, &n);
        r32(r); r16(r);
        for (int c = (int)rv(r) - 1; c > 0 && !r->bad; c--) { rbytes(r, &n); rbytes(r, &n); r8(r); r8(r); r8(r); rtags(r); }
        rtags(r);
    }
    return r->bad ? -1 : 0;
}

static void metadata(buf *b, const topic *topics, int count) { /* Metadata v12 by name */
    size_t at = frame_start(b, 3, 12, 1);
    wv(b, count + 1);
    for (int t = 0; t < count; t++) { w64(b, 0); w64(b, 0); wstr(b, topics[t].name); w8(b, 0); }
    w8(b, 0); w8(b, 0); w8(b, 0);
    frame_end(b, at);
}

/* Stores the ids of the topics. Returns the first error code of a topic or a partition, or -1 if a topic or partition is missing. */
static int metadata_read(rd *r, topic *topics, int count, int partitions) {
    int n, first = 0, found = 0;
    rtags(r);
    r32(r);
    for (int k = (int)rv(r) - 1; k > 0 && !r->bad; k--) { r32(r); rbytes(r, &n); r32(r); rbytes(r, &n); rtags(r); }
    rbytes(r, &n);
    r32(r);
    for (int t = (int)rv(r) - 1; t > 0 && !r->bad; t--) {
        int e = r16(r);
        const uint8_t *name = rbytes(r, &n);
        const uint8_t *id = have(r, 16) ? r->p : NULL;
        if (id) r->p += 16;
        for (int i = 0; i < count && name && id; i++)
            if (n == (int)strlen(topics[i].name) && !memcmp(name, topics[i].name, n)) { memcpy(topics[i].id, id, 16); break; }
        r8(r);
        int p = (int)rv(r) - 1;
        if (!e && p >= partitions) found++;
        for (; p > 0 && !r->bad; p--) {
            int pe = r16(r);
            if (pe && !e) e = pe;
            r32(r); r32(r); r32(r);
            for (int list = 0; list < 3; list++)
                for (int k = (int)rv(r) - 1; k > 0 && !r->bad; k--) r32(r);
            rtags(r);
        }
        r32(r);
        rtags(r);
        if (e && !first) first = e;
    }
    return first ? first : r->bad || found != count ? -1 : 0;
}
