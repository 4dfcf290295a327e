/* hash.c: SHA-256 (FIPS 180-4). */
#include "dpb_hash.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 64

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2,
};

static uint32_t rotate(uint32_t x, int bits)
{
    return x >> bits | x << (32 - bits);
}

static void expand(const unsigned char *block, uint32_t words[64])
{
    for (int i = 0; i < 16; i++, block += 4)
        words[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
                   block[3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = words[i - 15], b = words[i - 2];

        words[i] = words[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + words[i - 7] +
                   (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
}

static void add_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t words[64], v[8];

    expand(block, words);
    memcpy(v, state, sizeof(v));
    for (int i = 0; i < 64; i++) {
        const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        const uint32_t t1 = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                            choice + constants[i] + words[i];
        const uint32_t t2 = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) + majority;

        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void dpb_sha256_text(const void *bytes, size_t count, char text[DPB_SHA256_TEXT_BYTES])
{
    /* the same of the square roots of the first 8 primes */
    uint32_t state[8] = {
            0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    const unsigned char *next = bytes;
    const uint64_t bits = (uint64_t)count * 8;
    unsigned char tail[2 * BLOCK_BYTES] = {0};
    size_t left = count;

    for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, next += BLOCK_BYTES)
        add_block(state, next);
    if (left > 0)
        memcpy(tail, next, left);
    tail[left] = 0x80;
    const size_t tail_bytes = left < BLOCK_BYTES - 8 ? BLOCK_BYTES : 2 * BLOCK_BYTES;
    for (int i = 0; i < 8; i++)
        tail[tail_bytes - 1 - (size_t)i] = (unsigned char)(bits >> (8 * i));
    for (size_t at = 0; at < tail_bytes; at += BLOCK_BYTES)
        add_block(state, tail + at);
    for (int i = 0; i < 8; i++)
        snprintf(text + (size_t)8 * (size_t)i, 9, "%08x", (unsigned)state[i]);
}
