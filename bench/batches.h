/*
 * Record batches of format 2, as Kafka stores them: built here to be produced, and checked after a fetch.
 */
#pragma once
#include "wire.h"

/* ---------------------------------------------------------------- CRC-32C */

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_hardware(const uint8_t *p, size_t n) {
    uint64_t crc = 0xffffffff;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t eight;
        memcpy(&eight, p, 8);
        crc = __builtin_ia32_crc32di(crc, eight);
    }
    for (; n; p++, n--) crc = __builtin_ia32_crc32qi(crc, *p);
    return ~(uint32_t)crc;
}
#endif

static uint32_t crc32c_tables(const uint8_t *p, size_t n) { /* eight bytes a step */
    static uint32_t table[8][256];
    if (!table[0][1]) {
        for (int i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (c & 1 ? 0x82f63b78 : 0);
            table[0][i] = c;
        }
        for (int k = 1; k < 8; k++)
            for (int i = 0; i < 256; i++) table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
    }
    uint32_t crc = 0xffffffff;
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = crc ^ (p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
              table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    for (; n; p++, n--) crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

static uint32_t crc32c(const uint8_t *p, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return crc32c_hardware(p, n);
#endif
    return crc32c_tables(p, n);
}

/* ---------------------------------------------------------------- batches */

/* Positions of the fields: base offset 0, length 8, leader epoch 12, magic 16, then these. */
enum { B_CRC = 17, B_CHECKED = 21, B_LAST_DELTA = 23, B_PRODUCER = 43, B_PRODUCER_EPOCH = 51, B_SEQUENCE = 53, B_COUNT = 57, B_HEADER = 61 };
enum { LOG_OVERHEAD = 12 }; /* bytes before those that the length field counts */

static uint32_t get32(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return ntohl(x); }
static uint64_t get64(const uint8_t *p) { uint64_t x; memcpy(&x, p, 8); return __builtin_bswap64(x); }
static void set16(uint8_t *p, int v) { uint16_t x = htons(v); memcpy(p, &x, 2); }
static void set32(uint8_t *p, uint32_t v) { uint32_t x = htonl(v); memcpy(p, &x, 4); }
static void set64(uint8_t *p, uint64_t v) { uint64_t x = __builtin_bswap64(v); memcpy(p, &x, 8); }

static void batch_seal(uint8_t *p, size_t n) { set32(p + B_CRC, crc32c(p + B_CHECKED, n - B_CHECKED)); }

/* Writes producer id, epoch and sequence of an idempotent producer into a batch that was built without them. */
static void batch_number(uint8_t *p, size_t n, int64_t producer_id, int epoch, int32_t sequence) {
    set64(p + B_PRODUCER, producer_id);
    set16(p + B_PRODUCER_EPOCH, epoch);
    set32(p + B_SEQUENCE, sequence);
    batch_seal(p, n);
}

/* Writes a zigzag varint, the form of the numbers in a record. */
static void wz(buf *b, int32_t v) { wv(b, (uint32_t)v << 1 ^ (uint32_t)(v >> 31)); }

/* Appends one batch; the values are bytes that do not compress. Returns its size. */
static size_t batch_build(buf *b, int records, int value_bytes, int64_t now_ms) {
    size_t at = b->n;
    w64(b, 0);
    w32(b, 0);
    w32(b, -1); /* leader epoch: the broker sets it */
    w8(b, 2);
    w32(b, 0);
    w16(b, 0);
    w32(b, records - 1);
    w64(b, now_ms);
    w64(b, now_ms);
    w64(b, -1); /* no producer id */
    w16(b, -1);
    w32(b, -1);
    w32(b, records);
    buf one = {0};
    uint64_t noise = 0x9e3779b97f4a7c15;
    for (int i = 0; i < records; i++) {
        one.n = 0;
        w8(&one, 0);
        wz(&one, 0);
        wz(&one, i);
        wz(&one, -1); /* no key */
        wz(&one, value_bytes);
        for (int k = 0; k < value_bytes; k++) {
            if (!(k & 7)) { noise ^= noise << 13; noise ^= noise >> 7; noise ^= noise << 17; }
            w8(&one, noise >> (k & 7) * 8 & 255);
        }
        wz(&one, 0); /* no headers */
        wz(b, one.n);
        wraw(b, one.p, one.n);
    }
    free(one.p);
    size_t size = b->n - at;
    set32(b->p + at + 8, size - LOG_OVERHEAD);
    batch_seal(b->p + at, size);
    return size;
}

/* Checks that whole batches follow each other from `*offset` on, and moves `*offset` behind them. Ignores a last batch that
 * is cut short, as clients do. Returns the bytes of the whole batches, or -1 with the reason in `*why`. */
static int64_t batches_check(const uint8_t *p, size_t n, int64_t *offset, const char **why) {
    size_t at = 0;
    while (n - at >= B_HEADER) {
        const uint8_t *b = p + at;
        size_t size = get32(b + 8) + (size_t)LOG_OVERHEAD;
        if (size < B_HEADER || b[16] != 2) { *why = "no batch of format 2"; return -1; }
        if (size > n - at) break;
        if (get32(b + B_CRC) != crc32c(b + B_CHECKED, size - B_CHECKED)) { *why = "a batch with another checksum"; return -1; }
        if ((int64_t)get64(b) != *offset) { *why = "a batch at another offset"; return -1; }
        if (get32(b + B_COUNT) != get32(b + B_LAST_DELTA) + 1) { *why = "a batch with another number of records"; return -1; }
        *offset += get32(b + B_COUNT);
        at += size;
    }
    return at;
}
