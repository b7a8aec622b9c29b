/*
 * Kafka's primitive types, written to a growing buffer and read from a frame. If a frame ends too early, the reader is `bad` from
 * then on, and all further values are zero; so callers check `bad` only once, at the end.
 */
#pragma once
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Noreturn static void die(const char *f, ...) __attribute__((format(printf, 1, 2)));

typedef struct {
    uint8_t *p;
    size_t n, cap;
} buf;

static inline void need(buf *b, size_t k) {
    if (b->n + k > b->cap) {
        b->cap = (b->n + k) * 2;
        b->p = realloc(b->p, b->cap);
        if (!b->p) die("out of memory");
    }
}
static inline void w8(buf *b, int v) { need(b, 1); b->p[b->n++] = v; }
static inline void w16(buf *b, int v) { need(b, 2); uint16_t x = htons(v); memcpy(b->p + b->n, &x, 2); b->n += 2; }
static inline void w32(buf *b, int32_t v) { need(b, 4); uint32_t x = htonl(v); memcpy(b->p + b->n, &x, 4); b->n += 4; }
static inline void w64(buf *b, int64_t v) { need(b, 8); uint64_t x = __builtin_bswap64(v); memcpy(b->p + b->n, &x, 8); b->n += 8; }
static inline void wv(buf *b, uint32_t v) {
    need(b, 5);
    while (v > 127) { b->p[b->n++] = v | 128; v >>= 7; }
    b->p[b->n++] = v;
}
static inline void wraw(buf *b, const void *s, size_t k) { need(b, k); memcpy(b->p + b->n, s, k); b->n += k; }
static inline void wbytes(buf *b, const void *s, size_t k) { wv(b, k + 1); wraw(b, s, k); }
static inline void wstr(buf *b, const char *s) { wbytes(b, s, strlen(s)); }
static inline void wnstr(buf *b, const char *s) { if (s) wstr(b, s); else wv(b, 0); }

static size_t frame_start(buf *b, int key, int ver, int32_t corr) {
    size_t at = b->n;
    w32(b, 0);
    w16(b, key);
    w16(b, ver);
    w32(b, corr);
    w16(b, 6);
    wraw(b, "kgload", 6);
    w8(b, 0);
    return at;
}
static void frame_end(buf *b, size_t at) {
    uint32_t x = htonl(b->n - at - 4);
    memcpy(b->p + at, &x, 4);
}

/* Gives the request in `frame` another client id than the request before. Then no fast path, which answers repeated requests, applies. */
static inline void vary_client_id(uint8_t *frame) {
    enum { CLIENT_ID_AT = 14, CLIENT_ID_BYTES = 6 };
    static uint32_t number;
    uint32_t left = number++;
    for (int i = CLIENT_ID_BYTES; i--; left /= 10) frame[CLIENT_ID_AT + i] = '0' + left % 10;
}

typedef struct {
    const uint8_t *p, *e;
    bool bad;
} rd;

static inline bool have(rd *r, size_t k) { if ((size_t)(r->e - r->p) < k) { r->bad = true; r->p = r->e; return false; } return true; }
static inline int r8(rd *r) { return have(r, 1) ? *r->p++ : 0; }
static inline int r16(rd *r) { if (!have(r, 2)) return 0; uint16_t x; memcpy(&x, r->p, 2); r->p += 2; return (int16_t)ntohs(x); }
static inline int32_t r32(rd *r) { if (!have(r, 4)) return 0; uint32_t x; memcpy(&x, r->p, 4); r->p += 4; return (int32_t)ntohl(x); }
static inline int64_t r64(rd *r) { if (!have(r, 8)) return 0; uint64_t x; memcpy(&x, r->p, 8); r->p += 8; return (int64_t)__builtin_bswap64(x); }
static inline uint32_t rv(rd *r) {
    uint32_t v = 0;
    for (int s = 0; s < 35; s += 7) {
        int c = r8(r);
        v |= (uint32_t)(c & 127) << s;
        if (!(c & 128)) return v;
    }
    r->bad = true;
    return 0;
}
/* compact (nullable) string or bytes: returns pointer, length in *n (-1 for null) */
static const uint8_t *rbytes(rd *r, int *n) {
    uint32_t k = rv(r);
    if (!k) { *n = -1; return NULL; }
    k--;
    if (!have(r, k)) { *n = 0; return NULL; }
    const uint8_t *p = r->p;
    r->p += k;
    *n = k;
    return p;
}
static void rtags(rd *r) {
    uint32_t k = rv(r);
    while (k-- && !r->bad) {
        rv(r);
        uint32_t n = rv(r);
        if (have(r, n)) r->p += n;
    }
}
